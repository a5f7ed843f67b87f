#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/language/generation.h>

#include "mcp/tool.h"

namespace jerboa::cli {

/// A call as a model wrote it.
struct WrittenCall {
  std::string name;
  std::string arguments;  ///< JSON, if the model made no mistake
};

/// An answer of a model that knows tools.
struct ToolAnswer {
  std::string text;
  std::vector<WrittenCall> calls = {};
  Generation generation = {};
};

enum class Calls { allowed, required, forbidden };

/// What surrounds the loop of questions and calls.
struct AgentParts {
  /// The model's next message.
  std::function<ToolAnswer(const mcp::Json& messages, Calls calls)> ask;
  std::function<void(const WrittenCall& call)> on_call = [](const WrittenCall&) {};
  /// What a tool answered, before it goes to the model; may shorten it.
  std::function<void(mcp::ToolResult& result)> on_result = [](mcp::ToolResult&) {};
  mcp::CallContext context = {};
};

struct AgentOptions {
  int rounds = 8;              ///< of calls; after them the model must answer without
  bool requires_call = false;  ///< the first answer must be one
};

/// Lets a model answer the last message, calling tools and reading their results as often as it likes. Everything that
/// is said is appended to the messages, in OpenAI's form. What goes wrong with a call is its result, so that the model
/// can do better.
ToolAnswer answer_with_tools(mcp::Json& messages, const std::vector<mcp::Tool>& tools, const AgentOptions& options,
                             const AgentParts& parts);

}  // namespace jerboa::cli
