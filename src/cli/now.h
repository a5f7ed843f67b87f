#pragma once

#include <chrono>

namespace jerboa::cli {

/// Seconds since some fixed point in time.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace jerboa::cli
