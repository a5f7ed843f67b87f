#include "cli/line_editor.h"

#include <cerrno>
#include <iostream>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/libedit.h"
#include "cli/terminal.h"

namespace jerboa::cli {

LineEditor::LineEditor(std::filesystem::path history, std::vector<std::string> words)
    : is_interactive_(is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)) {
  if (is_interactive_) editing_ = Editing::open(std::move(history), std::move(words));
}

LineEditor::~LineEditor() = default;

LineEditor::Input LineEditor::read_plain_line(const char* prompt) const {
  if (is_interactive_) write_text(prompt);
  Input input;
  if (std::getline(std::cin, input.text)) {
    input.outcome = Outcome::message;
  } else if (CatchInterrupts::is_set()) {
    std::cin.clear();
    std::clearerr(stdin);
    input.outcome = Outcome::interrupted;
  }
  return input;
}

LineEditor::Input LineEditor::read_line(const char* prompt, const std::string& draft) {
  return editing_ ? editing_->read(prompt, draft) : read_plain_line(prompt);
}

LineEditor::Input LineEditor::read(const std::string& draft) {
  Input whole = read_line("> ", draft);
  while (whole.outcome == Outcome::message && whole.text.ends_with('\\')) {
    whole.text.back() = '\n';
    Input more = read_line(". ", "");
    if (more.outcome == Outcome::interrupted) return more;
    if (more.outcome == Outcome::end) break;
    whole.text += more.text;
  }
  if (editing_ && whole.outcome == Outcome::message) editing_->remember(whole.text);
  return whole;
}

}  // namespace jerboa::cli
