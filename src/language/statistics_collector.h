#pragma once

#include <jerboa/language/statistics.h>
#include <jerboa/serving/scheduler.h>

namespace jerboa::language {

/// Accumulates the figures of steps and sequences.
class StatisticsCollector {
 public:
  void add_step(const serving::Step& step, int dispatches, double start, double end);
  void add_text(const serving::SequenceStatistics& text);
  const Statistics& statistics() const { return statistics_; }

 private:
  Statistics statistics_;
  double busy_until_ = 0;
};

}  // namespace jerboa::language
