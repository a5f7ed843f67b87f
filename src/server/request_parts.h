#pragma once

#include <string>

#include "server/request.h"

// What the formats of chat, completions and responses share.
namespace jerboa::server {

void read_sampling(const Fields& fields, const RequestLimits& limits, GenerationRequest& out);
void read_max_tokens(const Fields& fields, std::string_view name, const RequestLimits& limits, GenerationRequest& out);
/// "chat_template_kwargs", variables of the template.
void read_variables(const Fields& fields, ChatRequest& out);
/// How much a model is to think, which templates know as a variable; "none" turns it off.
void read_effort(const Fields& fields, std::string_view name, ChatRequest& out);
/// {"type": "text" | "json_object" | "json_schema"}; the schema itself is at `schema_holder`.
void read_format(const Fields& format, const Fields& schema_holder, GenerationRequest& out);
/// A content of strings or of text parts as one string; throws ApiError for parts that are not text.
std::string content_text(const Json& content, const std::string& where);
/// The arguments of an earlier call, which clients send as text and templates read as an object.
Json call_arguments(const Json& arguments, const std::string& where);
/// Applies "tool_choice" to the tools that were read: keeps those that may be called.
void read_tool_choice(const Fields& fields, ChatRequest& out);
void add_tool(const Fields& function, const RequestLimits& limits, ChatRequest& out);

}  // namespace jerboa::server
