#include "cli/interrupt.h"

#include <atomic>
#include <csignal>
#include <unistd.h>

#include "cli/commands.h"

namespace jerboa::cli {
namespace {

std::atomic<bool> was_interrupted = false;  // lock-free, so that a signal handler may set it
static_assert(std::atomic<bool>::is_always_lock_free);

void remember_interrupt(int) { was_interrupted = true; }

// A shell may start a background program with Ctrl-C ignored, because it is meant for others then.
bool is_ignored_by_parent() {
  static const bool is_ignored = [] {
    struct sigaction inherited {};
    return sigaction(SIGINT, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
  }();
  return is_ignored;
}

}  // namespace

void exit_on_interrupt() {
  if (is_ignored_by_parent()) return;
  std::signal(SIGINT, [](int) { _exit(static_cast<int>(ExitCode::interrupted)); });
}

CatchInterrupts::CatchInterrupts() {
  was_interrupted = false;
  if (is_ignored_by_parent()) return;
  struct sigaction action {};
  action.sa_handler = remember_interrupt;  // without SA_RESTART, so that reading a line is interrupted
  sigaction(SIGINT, &action, nullptr);
}

CatchInterrupts::~CatchInterrupts() { exit_on_interrupt(); }

bool CatchInterrupts::is_set() { return was_interrupted; }
bool CatchInterrupts::take() { return was_interrupted.exchange(false); }

void end_if_interrupted() {
  if (CatchInterrupts::is_set()) throw Exit{ExitCode::interrupted};
}

}  // namespace jerboa::cli
