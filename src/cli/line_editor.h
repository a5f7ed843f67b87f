#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace jerboa::cli {

/// Reads the user's input, with editing and a persistent history if both ends are terminals and the command was built
/// with libedit; otherwise plain lines.
class LineEditor {
 public:
  /// `history` is the file that keeps the history, if it can be written. Tab completes `words` at the beginning of a
  /// line.
  LineEditor(std::filesystem::path history, std::vector<std::string> words);
  ~LineEditor();

  enum class Outcome { message, interrupted, end };
  struct Input {
    Outcome outcome = Outcome::end;
    std::string text;
  };
  /// The next message. A line that ends with a backslash continues on the next one; pasted text is one message,
  /// whatever line breaks it has. `draft` is put into the line for the user to edit.
  Input read(const std::string& draft = "");
  /// Whether input comes from a person.
  bool is_interactive() const { return is_interactive_; }

  /// The implementation with libedit (cli/libedit.h).
  struct Editing;

 private:
  Input read_line(const char* prompt, const std::string& draft);
  Input read_plain_line(const char* prompt) const;

  bool is_interactive_ = false;
  std::unique_ptr<Editing> editing_;  // null: plain lines
};

}  // namespace jerboa::cli
