#include "language/entries_ahead.h"

#include <chrono>

#include "base/clock.h"

namespace jerboa::language {

EntriesAhead::EntriesAhead(const Session& session, std::vector<Entry> entries)
    : prepared_(std::async(std::launch::async | std::launch::deferred,
                           [this, &session, entries = std::move(entries)] { return prepare(session, entries); })) {}

std::vector<PreparedEntry> EntriesAhead::prepare(const Session& session, const std::vector<Entry>& entries) {
  const detail::Stopwatch watch;
  std::vector<PreparedEntry> prepared;
  for (const Entry& entry : entries) {
    if (is_stopped_) break;
    prepared.push_back(session.prepare_entry(entry.name, entry.graph()));
  }
  seconds_ = watch.seconds();
  return prepared;
}

void EntriesAhead::check() const {
  if (prepared_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) prepared_.get();
}

}  // namespace jerboa::language
