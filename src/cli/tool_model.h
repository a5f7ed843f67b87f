#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/language/language_model.h>

#include "cli/agent.h"
#include "server/chat_prompt.h"

namespace jerboa::cli {

/// A model that is told of tools and whose calls of them are recognised, in the formats that the server knows.
class ToolModel {
 public:
  /// Throws UsageError if the model has no chat template.
  ToolModel(LanguageModel& model, const std::vector<mcp::Tool>& tools);

  struct Question {
    const mcp::Json& messages;
    Calls calls = Calls::allowed;
    std::string required_tool = {};  ///< the one that a required call is of; "" for any
    JsonValue variables = {};        ///< of the template
    GenerateOptions options = {};
    /// Receives the answer as it comes, without calls; thoughts are between <think> and </think>.
    OnText on_text = {};
    std::function<bool()> is_cancelled = [] { return false; };
  };
  ToolAnswer ask(const Question& question);

  /// The tokens of a question, without an answer to it.
  std::vector<std::int32_t> tokens(const mcp::Json& messages, const JsonValue& variables) const;
  /// Shortens a text to so many tokens, and says so in it.
  std::string shortened_to(const std::string& text, std::int64_t tokens) const;

 private:
  server::ChatPrompt prompt_of(const mcp::Json& messages, Calls calls, const std::string& required_tool,
                               const JsonValue& variables) const;

  LanguageModel& model_;
  server::ChatFormat format_;
  mcp::Json tools_json_ = mcp::Json::array();
};

}  // namespace jerboa::cli
