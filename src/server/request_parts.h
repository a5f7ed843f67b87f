#pragma once

#include <string>

#include "server/request.h"

// Shared by the formats of chat, completions and responses.
namespace jerboa::server {

void read_sampling(const Fields& fields, const RequestLimits& limits, GenerationRequest& out);
void read_max_tokens(const Fields& fields, std::string_view name, const RequestLimits& limits, GenerationRequest& out);
/// Reads "chat_template_kwargs", the template's variables.
void read_variables(const Fields& fields, ChatRequest& out);
/// Reads the thinking effort, which templates know as a variable; "none" turns thinking off.
void read_effort(const Fields& fields, std::string_view name, ChatRequest& out);
/// {"type": "text" | "json_object" | "json_schema"}; the schema itself is at `schema_holder`.
void read_format(const Fields& format, const Fields& schema_holder, GenerationRequest& out);
/// Joins a content of strings or text parts into one string; throws ApiError for parts that are not text.
std::string content_text(const Json& content, const std::string& where);
/// The arguments of an earlier call, which clients send as text and templates read as an object.
Json call_arguments(const Json& arguments, const std::string& where);
/// Applies "tool_choice" to the tools: keeps those that may be called.
void read_tool_choice(const Fields& fields, ChatRequest& out);
void add_tool(const Fields& function, const RequestLimits& limits, ChatRequest& out);

}  // namespace jerboa::server
