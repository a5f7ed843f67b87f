#pragma once

namespace jerboa::cli {

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

}  // namespace jerboa::cli
