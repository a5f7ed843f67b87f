#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace jerboa::cli {

/// Seconds since some fixed point in time.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The median; 0 if there are no values.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace jerboa::cli
