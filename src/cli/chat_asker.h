#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/language/language_model.h>

#include "cli/agent.h"
#include "server/chat_prompt.h"

namespace jerboa::cli {

/// Receives an answer as it comes, thoughts and text, without calls.
using OnShown = std::function<void(std::string_view text, bool is_thought)>;

/// A model that answers messages. Its thoughts and its calls of tools are recognised, in the formats that the server
/// knows.
class ChatAsker {
 public:
  /// `tools` is a list in OpenAI's form. Throws UsageError if the model has no chat template.
  explicit ChatAsker(LanguageModel& model, mcp::Json tools = mcp::Json::array());

  /// What is asked of the model.
  struct Question {
    const mcp::Json& messages;
    Calls calls = Calls::allowed;
    std::string required_tool = {};  ///< the one that a required call is of; "" for any
    JsonValue variables = {};        ///< of the template
    GenerateOptions options = {};
    OnShown on_text = {};
    std::function<bool()> is_cancelled = [] { return false; };
  };
  ChatAnswer ask(const Question& question);

  /// A question as the model reads it, for callers that generate the answer themselves and read it afterwards.
  struct Prepared {
    server::ChatPrompt prompt;
    std::vector<std::int32_t> tokens;
    GenerateOptions options;
    server::ChatRequest request = {};
    bool has_tools = false;
  };
  Prepared prepare(const Question& question) const;
  ChatAnswer read(const Prepared& question, Generation generation) const;

  /// The tokens of a question, without an answer to it.
  std::vector<std::int32_t> tokens(const mcp::Json& messages, const JsonValue& variables) const;
  /// Appends the results of tools to messages of which the model reads those that `read` returns, shortened to the room
  /// that is left; false if there is no room for more.
  bool add_results(mcp::Json& messages, mcp::Json results, const JsonValue& variables, int max_tokens,
                   const std::function<mcp::Json(const mcp::Json& messages)>& read) const;
  const std::string& template_source() const;

 private:
  class Reader;
  server::ChatRequest request_of(const mcp::Json& messages, Calls calls, const std::string& required_tool,
                                 const JsonValue& variables, bool is_constrained) const;
  server::ChatPrompt prompt_of(const server::ChatRequest& request) const;
  Generation generated(const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                       const std::function<bool()>& is_cancelled, const std::function<void(const TextPiece&)>& take);

  LanguageModel& model_;
  server::ChatFormat format_;
  mcp::Json tools_json_;
};

/// Throws BadArguments, which names the flag, if a list of tools is not in OpenAI's form.
void check_described(const mcp::Json& tools, const std::string& flag);

}  // namespace jerboa::cli
