#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace jerboa::cli {

/// Reads what a user types, with editing and a history that lasts if both ends are terminals and the command was built
/// with libedit; otherwise plain lines.
class LineEditor {
 public:
  /// The history is kept in `history`, if that can be written. Tab completes `words` at the beginning of a line.
  LineEditor(std::filesystem::path history, std::vector<std::string> words);
  ~LineEditor();

  enum class Outcome { message, interrupted, end };
  struct Input {
    Outcome outcome = Outcome::end;
    std::string text;
  };
  /// The next message. A line that ends with a backslash goes on in the next one; what is pasted is one message,
  /// whatever line breaks it holds. `draft` is put into the line for the user to edit.
  Input read(const std::string& draft = "");
  /// Whether a person types.
  bool is_interactive() const { return is_interactive_; }

  /// How lines are edited (cli/libedit.h).
  struct Editing;

 private:
  Input read_line(const char* prompt, const std::string& draft);
  Input read_plain_line(const char* prompt) const;

  bool is_interactive_ = false;
  std::unique_ptr<Editing> editing_;  // none: plain lines
};

}  // namespace jerboa::cli
