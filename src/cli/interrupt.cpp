#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace jerboa::cli {
namespace {

std::atomic<bool> was_interrupted = false;  // lock-free, so that a signal handler may set it
static_assert(std::atomic<bool>::is_always_lock_free);

void remember_interrupt(int) { was_interrupted = true; }

}  // namespace

CatchInterrupts::CatchInterrupts() {
  was_interrupted = false;
  struct sigaction action {};
  action.sa_handler = remember_interrupt;  // without SA_RESTART, so that reading a line ends
  sigaction(SIGINT, &action, nullptr);
}

CatchInterrupts::~CatchInterrupts() { std::signal(SIGINT, SIG_DFL); }

bool CatchInterrupts::is_set() { return was_interrupted; }
bool CatchInterrupts::take() { return was_interrupted.exchange(false); }

}  // namespace jerboa::cli
