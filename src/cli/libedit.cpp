#include "cli/libedit.h"

#ifdef JERBOA_LIBEDIT
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

std::atomic<bool> was_resized = false;

// Bracketed paste: the terminal marks pasted text, so that line breaks in it do not end the line.
constexpr const char* begin_of_paste = "\\e[200~";
constexpr std::wstring_view end_of_paste = L"\033[201~";
constexpr const char* paste_on = "\033[?2004h";
constexpr const char* paste_off = "\033[?2004l";
// A key that no keyboard has; reading it puts the draft into the line.
constexpr const char* draft_key = "\\e[9000~";
constexpr const char* draft_keystroke = "\033[9000~";

constexpr int remembered = 1000;  // messages in the history

void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

std::wstring widened(const std::string& text) {
  std::wstring wide;
  std::mbstate_t state{};
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    wchar_t character = 0;
    const std::size_t used = std::mbrtowc(&character, at, static_cast<std::size_t>(end - at), &state);
    if (used == 0 || used > static_cast<std::size_t>(end - at)) break;
    wide += character;
    at += used;
  }
  return wide;
}

class LibEdit final : public LineEditor::Editing {
 public:
  LibEdit(std::filesystem::path file, std::vector<std::string> words)
      : file_(std::move(file)), words_(std::move(words)) {
    use_utf8();
    history_ = history_init();
    history(history_, &event_, H_SETSIZE, remembered);
    history(history_, &event_, H_SETUNIQUE, 1);
    load_history();
    editor_ = el_init("jerboa", stdin, stdout, stderr);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, prompt_of);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL, 0);
    el_set(editor_, EL_GETCFN, read_character);
    el_set(editor_, EL_HIST, ::history, history_);
    el_set(editor_, EL_ADDFN, "jerboa-paste", "Insert what is pasted", insert_paste);
    el_set(editor_, EL_ADDFN, "jerboa-draft", "Insert a draft", insert_draft);
    bind(begin_of_paste, "jerboa-paste");
    bind(draft_key, "jerboa-draft");
    el_set(editor_, EL_ADDFN, "jerboa-complete", "Complete a word", complete);
    bind("^I", "jerboa-complete");
    bind("^R", "em-inc-search-prev");
    bind("^W", "ed-delete-prev-word");
    bind("\\e[3~", "ed-delete-next-char");
    bind("\\e[H", "ed-move-to-beg");
    bind("\\e[F", "ed-move-to-end");
    bind("\\e[1~", "ed-move-to-beg");
    bind("\\e[4~", "ed-move-to-end");
    bind("\\e[1;5D", "ed-prev-word");
    bind("\\e[1;5C", "em-next-word");
    el_source(editor_, nullptr);
    struct sigaction action {};
    action.sa_handler = [](int) { was_resized = true; };
    sigaction(SIGWINCH, &action, nullptr);
  }

  ~LibEdit() override {
    std::signal(SIGWINCH, SIG_DFL);
    el_end(editor_);
    history_end(history_);
  }
  LibEdit(const LibEdit&) = delete;
  LibEdit& operator=(const LibEdit&) = delete;

  LineEditor::Input read(const char* prompt, const std::string& draft) override {
    prompt_ = prompt;
    draft_ = widened(draft);
    if (!draft_.empty()) el_push(editor_, draft_keystroke);
    write_text(paste_on);
    int count = 0;
    const char* const line = el_gets(editor_, &count);
    LineEditor::Input input;
    if (line != nullptr && count > 0) {
      input.outcome = LineEditor::Outcome::message;
      input.text = line;
      if (input.text.ends_with('\n')) input.text.pop_back();
    } else if (CatchInterrupts::is_set()) {
      el_reset(editor_);
      input.outcome = LineEditor::Outcome::interrupted;
    }
    write_text(paste_off);
    if (line == nullptr) write_text("\n");
    return input;
  }

  void remember(const std::string& message) override {
    if (message.find_first_not_of(" \t\n") == std::string::npos) return;
    history(history_, &event_, H_ENTER, message.c_str());
    if (file_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(file_.parent_path(), ignored);
    append_to_file(message);
  }

 private:
  // Appends to the file, so that other chats' messages stay. Writes a history of this message alone, because H_NSAVE_FP
  // writes one entry more than it is asked for.
  void append_to_file(const std::string& message) {
    std::FILE* const file = std::fopen(file_.c_str(), "a");
    if (file == nullptr) return;
    std::fseek(file, 0, SEEK_END);
    History* const last = history_init();
    history(last, &event_, H_SETSIZE, 1);
    history(last, &event_, H_ENTER, message.c_str());
    history(last, &event_, H_SAVE_FP, file);
    history_end(last);
    std::fclose(file);
  }

  // Also shortens the file to the limit.
  void load_history() {
    if (file_.empty()) return;
    const int lines = history(history_, &event_, H_LOAD, file_.c_str());
    if (lines < 2 * remembered) return;
    std::error_code ignored;
    const std::string unfinished = file_.string() + ".part";
    if (history(history_, &event_, H_SAVE, unfinished.c_str()) >= 0)
      std::filesystem::rename(unfinished, file_, ignored);
  }

  void bind(const char* key, const char* function) { el_set(editor_, EL_BIND, key, function, nullptr); }

  static LibEdit& of(EditLine* editor) {
    LibEdit* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *self;
  }

  static char* prompt_of(EditLine* editor) { return const_cast<char*>(of(editor).prompt_); }

  // Like libedit's own function, but Ctrl-C ends the line at once.
  static int read_character(EditLine* editor, wchar_t* character) {
    std::mbstate_t state{};
    for (;;) {
      // With a timeout, because a signal may arrive just before the wait begins.
      pollfd input{STDIN_FILENO, POLLIN, 0};
      const int ready = poll(&input, 1, 100);
      if (CatchInterrupts::is_set()) return -1;
      if (was_resized.exchange(false)) el_resize(editor);
      if (ready <= 0) continue;
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count == 0) return 0;
      if (count < 0 && errno != EINTR) return -1;
      if (count < 0) continue;
      const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // the character has more bytes
      if (used == static_cast<std::size_t>(-1)) {          // not valid
        state = {};
        continue;
      }
      return 1;
    }
  }

  static unsigned char insert_paste(EditLine* editor, int) {
    std::wstring text;
    wchar_t character = 0;
    while (el_wgetc(editor, &character) == 1) {
      text += character;
      if (!text.ends_with(end_of_paste)) continue;
      text.erase(text.size() - end_of_paste.size());
      break;
    }
    std::wstring clean;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool is_pair = text[i] == L'\r' && i + 1 < text.size() && text[i + 1] == L'\n';
      if (is_pair || text[i] == L'\0') continue;
      clean += text[i] == L'\r' ? L'\n' : text[i];
    }
    if (!clean.empty()) el_winsertstr(editor, clean.c_str());
    return CC_REFRESH;
  }

  // The longest common prefix of all words that start like the line, followed by a space if there is only one.
  std::string completion_of(std::string_view begun) const {
    std::string found;
    std::size_t count = 0;
    for (const std::string& word : words_) {
      if (begun.empty() || !word.starts_with(begun)) continue;
      if (count++ == 0) found = word;
      const auto [end, ignored] = std::mismatch(found.begin(), found.end(), word.begin(), word.end());
      found.erase(end, found.end());
    }
    return count == 0 ? "" : found.substr(begun.size()) + (count == 1 ? " " : "");
  }

  static unsigned char complete(EditLine* editor, int) {
    const LineInfo* const line = el_line(editor);
    const std::string more =
        of(editor).completion_of({line->buffer, static_cast<std::size_t>(line->cursor - line->buffer)});
    if (more.empty() || el_insertstr(editor, more.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }

  static unsigned char insert_draft(EditLine* editor, int) {
    el_winsertstr(editor, of(editor).draft_.c_str());
    return CC_REFRESH;
  }

  std::filesystem::path file_;
  std::vector<std::string> words_;
  History* history_ = nullptr;
  HistEvent event_{};
  EditLine* editor_ = nullptr;
  const char* prompt_ = "";
  std::wstring draft_;
};

}  // namespace

std::unique_ptr<LineEditor::Editing> LineEditor::Editing::open(std::filesystem::path history,
                                                               std::vector<std::string> words) {
  return std::make_unique<LibEdit>(std::move(history), std::move(words));
}

}  // namespace jerboa::cli

#else

namespace jerboa::cli {

std::unique_ptr<LineEditor::Editing> LineEditor::Editing::open(std::filesystem::path, std::vector<std::string>) {
  return nullptr;
}

}  // namespace jerboa::cli

#endif
