#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/language/generation.h>

#include "mcp/tool.h"
#include "server/server_tools.h"

namespace jerboa::cli {

using server::WrittenCall;

/// A tool of an MCP server as models call it.
server::ServerTool callable(const mcp::Tool& tool);

/// An answer of a model that knows tools.
struct ChatAnswer {
  std::string text;
  std::vector<WrittenCall> calls = {};
  Generation generation = {};
  std::string thoughts = {};

  bool is_empty() const { return text.empty() && calls.empty(); }
};
/// As a message of the conversation; calls are numbered by their round.
mcp::Json assistant_message(const ChatAnswer& answer, int round = 0);

enum class Calls { allowed, required, forbidden };

/// What surrounds the loop of questions and calls.
struct AgentParts {
  /// The model's next message.
  std::function<ChatAnswer(const mcp::Json& messages, Calls calls)> ask;
  std::function<void(const WrittenCall& call)> on_call = [](const WrittenCall&) {};
  std::function<void(const server::ToolOutput& output)> on_result = [](const server::ToolOutput&) {};
  /// Appends the results of a round to the messages, and may shorten them; false if there is no room for another round.
  std::function<bool(mcp::Json& messages, mcp::Json results)> add_results;
  std::function<bool()> is_cancelled = [] { return false; };
};

struct AgentOptions {
  int rounds = 8;              ///< of calls; after them the model must answer without
  bool requires_call = false;  ///< the first answer must be one
};

/// Lets a model answer the last message, calling tools and reading their results as often as it likes. Everything that
/// is said is appended to the messages, in OpenAI's form. What goes wrong with a call is its result, so that the model
/// can do better.
ChatAnswer answer_with_tools(mcp::Json& messages, const std::vector<server::ServerTool>& tools,
                             const AgentOptions& options, const AgentParts& parts);

}  // namespace jerboa::cli
