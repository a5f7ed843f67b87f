#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <jerboa/generate/constraint.h>
#include <jerboa/text/chat_template.h>

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
};

/// Renders a chat, with its tools. For templates that do not know tools, a system message describes them, and calls and
/// their results are texts of the assistant and the user.
ChatPrompt make_chat_prompt(const ChatTemplate& chat_template, const ChatFormat& format, const ChatRequest& request);

}  // namespace jerboa::server
