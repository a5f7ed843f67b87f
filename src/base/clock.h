#pragma once

#include <chrono>

namespace jerboa::detail {

/// Seconds since some fixed point in time, by a clock that is never set.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  /// Since construction, or since the last lap ended.
  double seconds() const { return steady_seconds() - start_; }
  double lap() {
    const double end = steady_seconds(), start = start_;
    start_ = end;
    return end - start;
  }

 private:
  double start_ = steady_seconds();
};

}  // namespace jerboa::detail
