#pragma once

#include <atomic>
#include <future>
#include <vector>

#include <jerboa/runtime/session.h>

#include "steps/model_plan.h"

namespace jerboa::language {

/// Compiles entries of a session on a background thread, as far as that needs no storage, while the session's weights
/// are read. In builds without threads, entries are compiled when they are asked for.
class EntriesAhead {
 public:
  /// Keeps a reference to the session.
  EntriesAhead(const Session& session, std::vector<Entry> entries);
  EntriesAhead(const EntriesAhead&) = delete;
  /// Starts no further entry, and waits for the one that is being compiled.
  ~EntriesAhead() { is_stopped_ = true; }

  /// Rethrows an error of the background thread, if there was one so far.
  void check() const;
  /// Waits for all entries. Rethrows an error of the background thread.
  const std::vector<PreparedEntry>& entries() const { return prepared_.get(); }
  /// The time that compiling took.
  double seconds() const { return prepared_.get(), seconds_; }

 private:
  std::vector<PreparedEntry> prepare(const Session& session, const std::vector<Entry>& entries);

  std::atomic<bool> is_stopped_ = false;
  double seconds_ = 0;
  std::shared_future<std::vector<PreparedEntry>> prepared_;  // the last member: its destructor waits for the thread
};

}  // namespace jerboa::language
