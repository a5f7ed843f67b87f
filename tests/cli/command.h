#pragma once

#include <chrono>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace jerboa::test {

/// The outcome of running the command.
struct Outcome {
  int code = -1;  ///< the exit status, or minus the signal that ended it
  std::string out, err;
};

struct RunSettings {
  std::string input = {};  ///< standard input
  std::map<std::string, std::string> variables = {};
  std::string output = {};         ///< a path for standard output, such as /dev/full; by default it is collected
  std::size_t max_file_bytes = 0;  ///< limit of a file's size, as if the disk were full then; 0: none
};

/// Runs `jerboa` with these arguments, without a shell or a terminal.
Outcome run_command(const std::vector<std::string>& arguments, const RunSettings& settings = {});

/// `jerboa` in a pseudo-terminal, as a user sees it.
class PseudoTerminal {
 public:
  /// The signal handling that the program inherits: Ctrl-C is ignored in the background of a shell without job control,
  /// where the tests themselves may have been started.
  enum class CtrlC { interrupts, is_ignored };

  explicit PseudoTerminal(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& variables = {}, CtrlC ctrl_c = CtrlC::interrupts);
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  /// Types keys; "\x03" is Ctrl-C, "\x04" Ctrl-D.
  void type(const std::string& keys) const;
  /// Waits until the program reads keys one by one, as line editors do; returns whether it does.
  bool wait_for_editor() const;
  /// Waits until the text appears after the last expected one; returns whether it did.
  bool expect(const std::string& text, double seconds = 60);
  /// Waits until the program ends; returns the exit status, or minus the signal, or -1000 if it does not end.
  int wait(double seconds = 60);
  /// Everything that was shown so far.
  const std::string& shown() const { return shown_; }

 private:
  bool read_some(double seconds);

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string shown_;
  std::size_t expected_ = 0;
};

}  // namespace jerboa::test
