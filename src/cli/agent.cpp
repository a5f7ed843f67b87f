#include "cli/agent.h"

#include <fmt/format.h>

namespace jerboa::cli {

using mcp::Json;

server::ServerTool callable(const mcp::Tool& tool) {
  return {tool.name, tool.description, tool.parameters,
          [call = tool.call](const Json& arguments, const std::function<bool()>& is_cancelled) {
            mcp::CallContext context;
            context.is_cancelled = is_cancelled;
            const mcp::ToolResult result = call(arguments, context);
            return server::ToolOutput{result.text, result.is_error};
          }};
}

mcp::Json assistant_message(const ChatAnswer& answer, int round) {
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < answer.calls.size(); ++i) ids.push_back(fmt::format("call_{}_{}", round, i));
  return server::assistant_message(answer.text, answer.calls, ids);
}

ChatAnswer answer_with_tools(Json& messages, const std::vector<server::ServerTool>& tools, const AgentOptions& options,
                             const AgentParts& parts) {
  bool has_room = true;
  for (int round = 0;; ++round) {
    const Calls calls = round >= options.rounds || !has_room  ? Calls::forbidden
                        : round == 0 && options.requires_call ? Calls::required
                                                              : Calls::allowed;
    ChatAnswer answer = parts.ask(messages, calls);
    if (calls == Calls::forbidden) answer.calls.clear();
    const Json message = assistant_message(answer, round);
    messages.push_back(message);
    if (answer.calls.empty()) return answer;
    Json results = Json::array();
    for (std::size_t i = 0; i < answer.calls.size(); ++i) {
      const WrittenCall& call = answer.calls[i];
      parts.on_call(call);
      const server::ToolOutput output = server::perform(tools, call, parts.is_cancelled);
      parts.on_result(output);
      results.push_back(server::tool_message(message["tool_calls"][i]["id"], call, output));
    }
    has_room = parts.add_results(messages, std::move(results));
    if (parts.is_cancelled()) return answer;
  }
}

}  // namespace jerboa::cli
