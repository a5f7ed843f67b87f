#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace jerboa::cli {

inline double now() { return detail::steady_seconds(); }

/// The median; 0 if there are no values.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace jerboa::cli
