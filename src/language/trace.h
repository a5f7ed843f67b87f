#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <jerboa/serving/scheduler.h>

namespace jerboa::language {

/// When steps and texts began and ended, as trace events for Perfetto: steps on one line, texts on lines of their own,
/// each with its wait for the first token and the time after it.
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
