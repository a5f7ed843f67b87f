#pragma once

namespace jerboa::cli {

/// Makes Ctrl-C end the program with ExitCode::interrupted, unless it is caught.
void exit_on_interrupt();

/// While an object of this class exists, Ctrl-C sets a flag instead of ending the program.
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

/// Throws Exit if Ctrl-C was pressed; for long work while interrupts are caught.
void end_if_interrupted();

}  // namespace jerboa::cli
