#pragma once

#include <atomic>
#include <future>
#include <vector>

#include <jerboa/runtime/session.h>

#include "steps/model_plan.h"

namespace jerboa::language {

/// Compiles entries of a session on a thread of its own, as far as that needs no storage, while the session's weights
/// are read. Without threads they are compiled when they are asked for.
class EntriesAhead {
 public:
  /// Refers to the session.
  EntriesAhead(const Session& session, std::vector<Entry> entries);
  EntriesAhead(const EntriesAhead&) = delete;
  /// Begins with no other entry, and waits for the one that is being compiled.
  ~EntriesAhead() { is_stopped_ = true; }

  /// Throws what went wrong so far.
  void check() const;
  /// Waits for all of them. Throws what went wrong.
  const std::vector<PreparedEntry>& entries() const { return prepared_.get(); }
  /// What compiling them took.
  double seconds() const { return prepared_.get(), seconds_; }

 private:
  std::vector<PreparedEntry> prepare(const Session& session, const std::vector<Entry>& entries);

  std::atomic<bool> is_stopped_ = false;
  double seconds_ = 0;
  std::shared_future<std::vector<PreparedEntry>> prepared_;  // the last member: its destructor waits for the thread
};

}  // namespace jerboa::language
