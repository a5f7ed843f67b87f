#include <fmt/format.h>

#include "base/parse_json.h"
#include "server/api_error.h"
#include "server/request_parts.h"

// Converts requests of /v1/responses to chat requests.
namespace jerboa::server {
namespace {

// Merges calls and the text before them into one message of the assistant: strict templates refuse two in a row.
void add_call(const Fields& item, Json& messages) {
  const Json* arguments = item.find("arguments");
  const Json function = {
      {"name", item.required_text("name")},
      {"arguments", arguments == nullptr ? Json::object() : call_arguments(*arguments, item.path("arguments"))}};
  const Json call = {{"id", item.required_text("call_id")}, {"type", "function"}, {"function", function}};
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  messages.back()["tool_calls"].push_back(call);
}

void add_item(const Json& json, std::size_t index, Json& messages) {
  const Fields item(json, fmt::format("input[{}]", index));
  const std::string type = item.text("type").value_or("message");
  if (type == "reasoning") return;  // templates drop earlier thoughts
  if (type == "function_call") {
    add_call(item, messages);
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", item.required_text("call_id")},
                        {"content", content_text(item.require("output"), item.path("output"))}});
  } else if (type == "message") {
    std::string role = item.required_text("role");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      item.fail("role", fmt::format("must be system, developer, user or assistant, not {}", in_quotes(role)));
    messages.push_back({{"role", role}, {"content", content_text(item.require("content"), item.path("content"))}});
  } else {
    item.fail("type", fmt::format("{} is not supported", in_quotes(type)));
  }
}

Json read_input(const Fields& fields) {
  Json messages = Json::array();
  if (const auto instructions = fields.text("instructions"))
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  const Json& input = fields.require("input");
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input}});
  } else {
    if (!input.is_array() || input.empty()) fields.fail("input", "must be a string or a list of items");
    for (std::size_t i = 0; i < input.size(); ++i) add_item(input[i], i, messages);
  }
  return messages;
}

}  // namespace

ChatRequest parse_responses_request(const Json& body, const RequestLimits& limits) {
  const Fields fields(body);
  ChatRequest out;
  read_sampling(fields, limits, out);
  out.choices = 1;
  read_max_tokens(fields, "max_output_tokens", limits, out);
  if (fields.find("previous_response_id") != nullptr)
    fields.fail("previous_response_id", "is not supported: nothing is stored; send the whole conversation as input");
  if (fields.boolean("background").value_or(false)) fields.fail("background", "is not supported");
  if (const auto text = fields.object("text"))
    if (const auto format = text->object("format")) read_format(*format, *format, out);
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) fields.fail("tools", "must be a list");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (tool.required_text("type") != "function")
        tool.fail("type", "must be \"function\": other tools are not supported");
      add_tool(tool, limits, out);
    }
  }
  read_tool_choice(fields, out);
  read_variables(fields, out);
  if (const auto reasoning = fields.object("reasoning")) read_effort(*reasoning, "effort", out);
  out.messages = read_input(fields);
  return out;
}

}  // namespace jerboa::server
