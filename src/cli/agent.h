#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/language/generation.h>

#include "mcp/tool.h"
#include "server/server_tools.h"

namespace jerboa::cli {

using server::WrittenCall;

/// An MCP server's tool in the form that models call.
server::ServerTool callable(const mcp::Tool& tool);

/// The answer of a model that may call tools.
struct ChatAnswer {
  std::string text;
  std::vector<WrittenCall> calls = {};
  Generation generation = {};
  std::string thoughts = {};

  bool is_empty() const { return text.empty() && calls.empty(); }
};
/// The answer as a message of the conversation; the ids of its calls contain the round.
mcp::Json assistant_message(const ChatAnswer& answer, int round = 0);

enum class Calls { allowed, required, forbidden };

/// The parts of the conversation loop that callers provide.
struct AgentParts {
  /// Returns the model's next message.
  std::function<ChatAnswer(const mcp::Json& messages, Calls calls)> ask;
  std::function<void(const WrittenCall& call)> on_call = [](const WrittenCall&) {};
  std::function<void(const server::ToolOutput& output)> on_result = [](const server::ToolOutput&) {};
  /// Appends the results of a round to the messages, possibly shortened; false if there is no room for another round.
  std::function<bool(mcp::Json& messages, mcp::Json results)> add_results;
  std::function<bool()> is_cancelled = [] { return false; };
};

struct AgentOptions {
  int rounds = 8;              ///< of calls; after that, the model must answer without tools
  bool requires_call = false;  ///< the first answer must be a call
};

/// Lets a model answer the last message, calling tools and reading their results as often as it likes. Every message is
/// appended to `messages`, in OpenAI's form. An error in a call becomes its result, so that the model can correct
/// itself.
ChatAnswer answer_with_tools(mcp::Json& messages, const std::vector<server::ServerTool>& tools,
                             const AgentOptions& options, const AgentParts& parts);

}  // namespace jerboa::cli
