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
  /// `tools` are the tools of `tool_flags`, which the model may call.
  Chat(LanguageModel& model, LanguageFlags flags, Thinking thinking, ToolFlags tool_flags,
       std::vector<server::ServerTool> tools);

  /// Answers a message. An error is reported and leaves the conversation as it was.
  void say(const std::string& message);
  /// The same, but an error ends the program.
  void say_or_throw(const std::string& message);

  /// Runs a command such as "/regen". Returns false if it ends the conversation.
  bool command(std::string_view line);
  /// The names of commands.
  static const std::vector<std::string>& commands();
  /// Whether a line is a command, not a message.
  static bool is_command(std::string_view line);
  /// The text to edit after /edit. The next message replaces the last one, unless editing is cancelled.
  std::string take_draft();
  void stop_editing() { replaces_last_ = false; }

  Conversation& conversation() { return conversation_; }
  /// Whether an answer was cut off before it was complete by --schema or --regex.
  bool was_cut() const { return was_cut_; }

 private:
  bool answer();  // false if it was stopped before any output
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
  JsonValue variables_;  // for the template
  Conversation conversation_;
  std::string draft_;
  bool replaces_last_ = false;  // the next message replaces the last one
  bool is_interactive_, colours_, was_cut_ = false;
};

}  // namespace jerboa::cli
