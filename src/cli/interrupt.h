#pragma once

namespace jerboa::cli {

/// From now on Ctrl-C ends the program with ExitCode::interrupted, unless it is caught.
void exit_on_interrupt();

/// While it lives, Ctrl-C does not end the program but sets a flag.
class CatchInterrupts {
 public:
  CatchInterrupts();
  ~CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  CatchInterrupts& operator=(const CatchInterrupts&) = delete;

  /// Whether Ctrl-C was pressed since the flag was last taken.
  static bool is_set();
  static bool take();
};

/// Throws Exit if Ctrl-C was pressed, for work that takes long while interrupts are caught.
void end_if_interrupted();

}  // namespace jerboa::cli
