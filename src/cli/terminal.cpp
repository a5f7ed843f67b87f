#include "cli/terminal.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include <jerboa/base/error.h>

#include "cli/interrupt.h"
#include "cli/timing.h"

namespace jerboa::cli {
namespace {

constexpr const char* clear_line = "\r\033[K";

[[noreturn]] void fail_to_write() {
  throw FileError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

}  // namespace

bool is_terminal(int descriptor) { return isatty(descriptor) != 0; }

bool has_colours(int descriptor) {
  const char* const none = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  return is_terminal(descriptor) && (none == nullptr || *none == '\0') &&
         (kind == nullptr || std::strcmp(kind, "dumb") != 0);
}

std::string dim(std::string_view text, bool colours) {
  return colours ? fmt::format("\033[2m{}\033[0m", text) : std::string(text);
}

std::string bold(std::string_view text, bool colours) {
  return colours ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Avoids stdio, which loses text if a signal arrives while it waits for a slow terminal or a full pipe.
void write_text(std::string_view text) {
  if (std::fflush(stdout) != 0) fail_to_write();
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      fail_to_write();
    } else if (CatchInterrupts::is_set()) {
      return;  // the caller checks the flag and ends
    }
  }
}

void flush_output() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_to_write();
  if (!std::cout) throw FileError("cannot write to standard output");
}

std::string read_input() {
  std::string text;
  std::vector<char> part(1 << 16);
  for (std::size_t count = 0; (count = std::fread(part.data(), 1, part.size(), stdin)) > 0;)
    text.append(part.data(), count);
  if (std::ferror(stdin) != 0) throw FileError(fmt::format("cannot read standard input: {}", std::strerror(errno)));
  return text;
}

void note(std::string_view text) { fmt::print(stderr, "{}\n", text); }

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string readable_bytes(std::int64_t bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

Waiting::Waiting(std::string what) : what_(std::move(what)) {
  if (is_terminal(STDERR_FILENO)) thread_ = std::thread([this] { show(); });
}

Waiting::~Waiting() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Waiting::show() {
  using namespace std::chrono_literals;
  const double begun = now();
  std::unique_lock lock(mutex_);
  bool is_shown = false;
  // Short waits are not announced.
  while (!ended_.wait_for(lock, is_shown ? 100ms : 200ms, [&] { return is_over_; })) {
    const std::string text = fmt::format("{} … {:.1f} s", what_, now() - begun);
    fmt::print(stderr, "{}{}", clear_line, dim(text, has_colours(STDERR_FILENO)));
    std::fflush(stderr);
    is_shown = true;
  }
  if (is_shown) fmt::print(stderr, "{}", clear_line);
  std::fflush(stderr);
}

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), begun_(now()) {}

ProgressBar::~ProgressBar() {
  if (is_shown_) fmt::print(stderr, "{}", clear_line);
  std::fflush(stderr);
}

void ProgressBar::show(std::int64_t done, std::int64_t total) {
  if (first_ < 0) first_ = done;
  if (!is_terminal(STDERR_FILENO) || (is_shown_ && now() - last_ < 0.1 && done != total)) return;
  last_ = now();
  const double seconds = last_ - begun_;
  const double rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;
  const std::string figures =
      total > 0 ? fmt::format("{} of {}, {}/s", readable_bytes(done), readable_bytes(total),
                              readable_bytes(static_cast<std::int64_t>(rate)))
                : fmt::format("{}, {}/s", readable_bytes(done), readable_bytes(static_cast<std::int64_t>(rate)));
  const int columns = std::clamp(terminal_width() - static_cast<int>(what_.size() + figures.size()) - 6, 0, 40);
  std::string bar;
  if (total > 0 && columns > 4) {
    const auto full =
        static_cast<int>(static_cast<double>(columns) * static_cast<double>(done) / static_cast<double>(total));
    for (int i = 0; i < columns; ++i) bar += i < full ? "█" : "░";
    bar += "  ";
  }
  fmt::print(stderr, "{}{}  {}{}", clear_line, what_, bar, figures);
  std::fflush(stderr);
  is_shown_ = true;
}

}  // namespace jerboa::cli
