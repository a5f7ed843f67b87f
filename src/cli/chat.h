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
  /// `tools` are those of `tool_flags`, which the model may call.
  Chat(LanguageModel& model, LanguageFlags flags, Thinking thinking, ToolFlags tool_flags,
       std::vector<server::ServerTool> tools);

  /// Answers a message. What goes wrong with one message is reported and leaves the conversation as it was.
  void say(const std::string& message);
  /// The same for a message whose failure ends the program.
  void say_or_throw(const std::string& message);

  /// Runs a command such as "/regen". Returns false if it ends the conversation.
  bool command(std::string_view line);
  /// The names of commands.
  static const std::vector<std::string>& commands();
  /// Whether a line is a command, not a message.
  static bool is_command(std::string_view line);
  /// The text that the user wants to edit, since /edit. The next message replaces it, unless editing is stopped.
  std::string take_draft();
  void stop_editing() { replaces_last_ = false; }

  Conversation& conversation() { return conversation_; }
  /// Whether an answer was cut before it was complete in the form of --schema or --regex.
  bool was_cut() const { return was_cut_; }

 private:
  bool answer();  // false if it was stopped before there was any of it
  ChatAnswer answer_calling_tools();
  ChatAnswer ask(const mcp::Json& messages, Calls calls);
  int room_for_answer() const;
  void make_room();
  void print_status(const Generation& result) const;
  void show_parameters() const;
  void set_parameters(std::string_view words);
  void regenerate();

  LanguageModel& model_;
  LanguageFlags flags_;
  Thinking thinking_;
  ToolFlags tool_flags_;
  std::vector<server::ServerTool> tools_;
  ChatAsker asker_;
  JsonValue variables_;  // of the template
  Conversation conversation_;
  std::string draft_;
  bool replaces_last_ = false;  // the next message is the last one, edited or again
  bool is_interactive_, colours_, was_cut_ = false;
};

}  // namespace jerboa::cli
