#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace jerboa::cli {

/// Whether a stream is a terminal: 0, 1 and 2 are standard input, output and error.
bool is_terminal(int descriptor);
/// Whether to use colours on a stream: it is a terminal that supports them, and NO_COLOR is not set.
bool has_colours(int descriptor);
/// `text` dimmed, or bold, if `colours`.
std::string dim(std::string_view text, bool colours);
std::string bold(std::string_view text, bool colours);
/// Columns of the terminal behind standard error, or 80.
int terminal_width();

/// Writes to standard output without buffering. Throws FileError.
void write_text(std::string_view text);
/// Throws FileError if something written to standard output was lost.
void flush_output();
/// Reads all of standard input.
std::string read_input();
/// Writes a line to standard error.
void note(std::string_view text);

/// "1 token", "2 tokens"
std::string counted(std::int64_t count, std::string_view what);
/// "12.3 MB"
std::string readable_bytes(std::int64_t bytes);

/// Shows what is being waited for, and for how long, in one line on standard error that disappears at the end. Does
/// nothing if that is not a terminal.
class Waiting {
 public:
  explicit Waiting(std::string what);
  ~Waiting();

 private:
  void show();

  std::string what_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

/// A progress bar on standard error, if that is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  /// `total` is 0 if it is unknown.
  void show(std::int64_t done, std::int64_t total);

 private:
  std::string what_;
  bool is_shown_ = false;
  double begun_ = 0, last_ = 0;
  std::int64_t first_ = -1;
};

}  // namespace jerboa::cli
