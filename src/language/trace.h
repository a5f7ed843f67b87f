#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <jerboa/serving/scheduler.h>

namespace jerboa::language {

/// The start and end of steps and sequences, as trace events for Perfetto: steps on one track, each sequence on a track
/// of its own, divided into the wait for its first token and the time after it.
class Trace {
 public:
  void add_step(const serving::Step& step, double start, double end);
  void add_text(serving::SequenceId id, const serving::SequenceStatistics& text);
  /// Written atomically.
  void write(const std::filesystem::path& path) const;

 private:
  struct Span {
    std::string name, category, details;  // details: JSON
    std::int64_t line;
    double start, end;
  };
  std::vector<Span> spans_;
};

}  // namespace jerboa::language
