#include "server/server_tools.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse_json.h"
#include "server/task.h"

namespace jerboa::server {
namespace {

Json parsed_arguments(const std::string& text) {
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return Json::object();
  return parse_ordered_json(text, "the arguments");
}

// Templates read arguments as an object; anything else is passed as text.
Json arguments_json(const std::string& text) {
  try {
    Json arguments = parsed_arguments(text);
    return arguments.is_object() ? arguments : Json(text);
  } catch (const std::exception&) {
    return text;
  }
}

}  // namespace

ToolOutput perform(const std::vector<ServerTool>& tools, const WrittenCall& call,
                   const std::function<bool()>& is_cancelled) {
  const auto tool =
      std::find_if(tools.begin(), tools.end(), [&](const ServerTool& one) { return one.name == call.name; });
  if (tool == tools.end()) {
    std::vector<std::string> names;
    for (const ServerTool& one : tools) names.push_back(one.name);
    return {fmt::format("there is no tool {}; available: {}", in_quotes(call.name), fmt::join(names, ", ")), true};
  }
  try {
    const Json arguments = parsed_arguments(call.arguments);
    if (!arguments.is_object()) return {"the arguments are not a JSON object", true};
    return tool->call(arguments, is_cancelled);
  } catch (const std::exception& error) {
    return {error.what(), true};
  }
}

Json assistant_message(const std::string& text, const std::vector<WrittenCall>& calls,
                       const std::vector<std::string>& ids) {
  Json message{{"role", "assistant"}, {"content", text}};
  for (std::size_t i = 0; i < calls.size(); ++i)
    message["tool_calls"].push_back(
        {{"id", ids[i]},
         {"type", "function"},
         {"function", {{"name", calls[i].name}, {"arguments", arguments_json(calls[i].arguments)}}}});
  return message;
}

Json tool_message(const std::string& id, const WrittenCall& call, const ToolOutput& output) {
  return {{"role", "tool"},
          {"tool_call_id", id},
          {"name", call.name},
          {"content", output.is_error ? "error: " + output.text : output.text}};
}

RunningCalls::RunningCalls(const ServerTools& tools, std::vector<WrittenCall> calls, double seconds) {
  const auto is_cancelled = [this, deadline = steady_seconds() + seconds] {
    return is_cancelled_ || steady_seconds() > deadline;
  };
  calls_ = std::async(std::launch::async, [&tools, calls = std::move(calls), is_cancelled] {
    std::vector<ServerCall> performed;
    for (const WrittenCall& call : calls)
      performed.push_back(
          {call, is_cancelled() ? ToolOutput{"cancelled", true} : perform(tools.tools, call, is_cancelled)});
    return performed;
  });
}

RunningCalls::~RunningCalls() {
  cancel();
  if (calls_.valid()) calls_.wait();
}

bool RunningCalls::are_done() const { return calls_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

Json tools_json(const std::vector<ServerTool>& tools, bool of_chat) {
  Json out = Json::array();
  for (const ServerTool& tool : tools) {
    Json function = {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}};
    if (of_chat) {
      out.push_back({{"type", "function"}, {"function", std::move(function)}});
    } else {
      function["type"] = "function";
      out.push_back(std::move(function));
    }
  }
  return out;
}

}  // namespace jerboa::server
