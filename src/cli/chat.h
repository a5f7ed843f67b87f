#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/conversation.h"
#include "cli/language_options.h"
#include "cli/thoughts.h"
#include "cli/tool_options.h"

namespace jerboa::cli {

/// A conversation between a user and a model.
class Chat {
 public:
  Chat(LanguageModel& model, LanguageFlags flags, Thinking thinking);

  /// Lets the model call tools.
  void use_tools(const ToolFlags& flags, std::vector<mcp::Tool> tools);

  /// Answers a message. What goes wrong with one message is reported and leaves the conversation as it was.
  void say(const std::string& message);
  /// The same for a message whose failure ends the program.
  void say_or_throw(const std::string& message);

  /// Runs a command such as "/regen". Returns false if it ends the conversation.
  bool command(std::string_view line);
  /// Whether a line is a command, not a message.
  static bool is_command(std::string_view line);
  /// The text that the user wants to edit, since /edit.
  std::string take_draft();

  Conversation& conversation() { return conversation_; }

 private:
  void answer();
  Generation answer_in_words();
  Generation answer_calling_tools();
  ToolAnswer ask(const mcp::Json& messages, Calls calls);
  void make_room();
  Generation stream(const std::vector<std::int32_t>& prompt, ThoughtFilter& filter);
  void print_status(const Generation& result) const;
  void show_parameters() const;
  void set_parameters(std::string_view words);
  void regenerate();

  LanguageModel& model_;
  LanguageFlags flags_;
  Thinking thinking_;
  Conversation conversation_;
  ToolFlags tool_flags_;
  std::vector<mcp::Tool> tools_;
  std::optional<ToolModel> tool_model_;
  std::string draft_;
  bool is_interactive_, colours_;
};

}  // namespace jerboa::cli
