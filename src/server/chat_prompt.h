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

/// What a chat template says about a model's answers.
struct ChatFormat {
  const ToolFormat* tools = nullptr;
  bool template_shows_tools = false;  ///< the template describes tools itself
  bool names_follow_marks = false;    ///< a call is written [TOOL_CALLS]NAME[ARGS]{…}
};
ChatFormat chat_format_of(std::string_view template_source);

/// What a model is to continue.
struct ChatPrompt {
  std::string text;
  std::string opening = {};  ///< the end of the text that is also the beginning of the answer
  bool is_in_thoughts = false;
  bool shows_marks = false;  ///< the answer's special tokens belong to its format
  /// That the rest of a required call is held to.
  std::shared_ptr<const Grammar> grammar = {};
  bool chooses_tool = false;  ///< the grammar is that of the tools' names; choose_tool() says how it goes on
};

/// Renders a chat, with its tools. For templates that do not know tools, a system message describes them, and calls and
/// their results are texts of the assistant and the user.
ChatPrompt make_chat_prompt(const ChatTemplate& chat_template, const ChatFormat& format, const ChatRequest& request);

/// What follows the name of the tool that a model chose: the opening is the rest of the call's head.
ForcedCall choose_tool(const ChatFormat& format, const ChatRequest& request, const std::string& chosen);

/// Goes on after that choice: adds it and the call's head to the prompt, and holds what follows to the grammar of the
/// arguments. Returns the tokens of the head.
std::vector<std::int32_t> go_on_after(const Generation& chosen, const ForcedCall& call, const Tokenizer& tokenizer,
                                      std::vector<std::int32_t>& prompt, GenerateOptions& options);

}  // namespace jerboa::server
