#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <jerboa/generate/constraint.h>
#include <jerboa/language/generation.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

#include "server/tool_format.h"

namespace jerboa::server {

/// Properties of a chat template that matter for parsing a model's answers.
struct ChatFormat {
  const ToolFormat* tools = nullptr;
  bool template_shows_tools = false;  ///< the template describes tools itself
  bool names_follow_marks = false;    ///< a call is written [TOOL_CALLS]NAME[ARGS]{…}
};
ChatFormat chat_format_of(std::string_view template_source);

/// The prompt of a chat, and how its answer is to be generated.
struct ChatPrompt {
  std::string text;
  std::string opening = {};  ///< the end of the prompt if it belongs to the answer
  bool is_in_thoughts = false;
  bool shows_marks = false;  ///< the answer's special tokens are part of its format
  /// Constrains the rest of a required call.
  std::shared_ptr<const Grammar> grammar = {};
  bool chooses_tool = false;  ///< the grammar covers only the tools' names; choose_tool() gives the rest
};

/// Renders a chat, including its tools. For templates without tools, a system message describes them, and calls and
/// their results become messages of the assistant and the user.
ChatPrompt make_chat_prompt(const ChatTemplate& chat_template, const ChatFormat& format, const ChatRequest& request);

/// The call's head and grammar after the model has chosen a tool by name; the opening is the rest of the head.
ForcedCall choose_tool(const ChatFormat& format, const ChatRequest& request, const std::string& chosen);

/// Continues after that choice: appends the chosen name and the call's head to the prompt, and constrains the rest by
/// the grammar of the arguments. Returns the tokens of the head.
std::vector<std::int32_t> go_on_after(const Generation& chosen, const ForcedCall& call, const Tokenizer& tokenizer,
                                      std::vector<std::int32_t>& prompt, GenerateOptions& options);

}  // namespace jerboa::server
