#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/language/language_model.h>

#include "cli/agent.h"
#include "server/chat_prompt.h"

namespace jerboa::cli {

/// Receives thoughts and text as they are generated, but no calls.
using OnShown = std::function<void(std::string_view text, bool is_thought)>;

/// Asks a model for the next message. Recognises its thoughts and tool calls, in the formats that the server knows.
class ChatAsker {
 public:
  /// `tools` is a list in OpenAI's form. Throws UsageError if the model has no chat template.
  explicit ChatAsker(LanguageModel& model, mcp::Json tools = mcp::Json::array());

  /// A request for the model's next message.
  struct Question {
    const mcp::Json& messages;
    Calls calls = Calls::allowed;
    std::string required_tool = {};  ///< the tool that a required call must be of; "" for any
    JsonValue variables = {};        ///< for the template
    GenerateOptions options = {};
    OnShown on_text = {};
    std::function<bool()> is_cancelled = [] { return false; };
  };
  ChatAnswer ask(const Question& question);

  /// A rendered question, for callers that generate the answer themselves and parse it afterwards.
  struct Prepared {
    server::ChatPrompt prompt;
    std::vector<std::int32_t> tokens;
    GenerateOptions options;
    server::ChatRequest request = {};
    bool has_tools = false;
  };
  Prepared prepare(const Question& question) const;
  ChatAnswer read(const Prepared& question, Generation generation) const;

  /// The tokens of the prompt for these messages.
  std::vector<std::int32_t> tokens(const mcp::Json& messages, const JsonValue& variables) const;
  /// Appends the results of tools to the messages, shortened to the room that is left in the context; false if there is
  /// no room for more. `read` selects the messages that the model reads.
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

/// Throws BadArguments that names the flag if a list of tools is not in OpenAI's form.
void check_described(const mcp::Json& tools, const std::string& flag);

}  // namespace jerboa::cli
