#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/conversation.h"
#include "cli/language_options.h"
#include "cli/thoughts.h"

namespace jerboa::cli {

/// A conversation between a user and a model.
class Chat {
 public:
  Chat(LanguageModel& model, LanguageFlags flags, Thinking thinking);

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
  Generation stream(const std::vector<std::int32_t>& prompt, ThoughtFilter& filter);
  void print_status(const Generation& result) const;
  void show_parameters() const;
  void set_parameters(std::string_view words);
  void regenerate();

  LanguageModel& model_;
  LanguageFlags flags_;
  Thinking thinking_;
  Conversation conversation_;
  std::string draft_;
  bool is_interactive_, colours_;
};

}  // namespace jerboa::cli
