#include "cli/agent.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse_json.h"

namespace jerboa::cli {
namespace {

using mcp::Json;

Json parsed_arguments(const std::string& text) {
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return Json::object();
  return parse_ordered_json(text, "the arguments");
}

mcp::ToolResult perform(const WrittenCall& call, const std::vector<mcp::Tool>& tools, const mcp::CallContext& context) {
  const auto tool =
      std::find_if(tools.begin(), tools.end(), [&](const mcp::Tool& one) { return one.name == call.name; });
  if (tool == tools.end()) {
    std::vector<std::string> names;
    for (const mcp::Tool& one : tools) names.push_back(one.name);
    return {fmt::format("there is no tool '{}'; there are {}", call.name, fmt::join(names, ", ")), true};
  }
  try {
    const Json arguments = parsed_arguments(call.arguments);
    if (!arguments.is_object()) return {"the arguments are not a JSON object", true};
    return tool->call(arguments, context);
  } catch (const std::exception& error) {
    return {error.what(), true};
  }
}

// Templates read the arguments as an object; what is not one stays the text that it is.
Json arguments_json(const std::string& text) {
  try {
    return parsed_arguments(text);
  } catch (const std::exception&) {
    return text;
  }
}

Json assistant_message(const ToolAnswer& answer, int round) {
  Json message{{"role", "assistant"}, {"content", answer.text}};
  for (std::size_t i = 0; i < answer.calls.size(); ++i)
    message["tool_calls"].push_back(
        {{"id", fmt::format("call_{}_{}", round, i)},
         {"type", "function"},
         {"function", {{"name", answer.calls[i].name}, {"arguments", arguments_json(answer.calls[i].arguments)}}}});
  return message;
}

}  // namespace

ToolAnswer answer_with_tools(Json& messages, const std::vector<mcp::Tool>& tools, const AgentOptions& options,
                             const AgentParts& parts) {
  for (int round = 0;; ++round) {
    const Calls calls = round == options.rounds               ? Calls::forbidden
                        : round == 0 && options.requires_call ? Calls::required
                                                              : Calls::allowed;
    ToolAnswer answer = parts.ask(messages, calls);
    const Json message = assistant_message(answer, round);
    messages.push_back(message);
    if (answer.calls.empty()) return answer;
    for (std::size_t i = 0; i < answer.calls.size(); ++i) {
      parts.on_call(answer.calls[i]);
      mcp::ToolResult result = perform(answer.calls[i], tools, parts.context);
      parts.on_result(result);
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", message["tool_calls"][i]["id"]},
                          {"name", answer.calls[i].name},
                          {"content", result.is_error ? "error: " + result.text : result.text}});
    }
    if (parts.context.is_cancelled()) return answer;
  }
}

}  // namespace jerboa::cli
