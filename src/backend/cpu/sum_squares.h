#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

struct Floats {
  const float* data = nullptr;
  std::int64_t count = 0;
};

/// The sum of the squares of all elements of all tensors, in an order that depends only on their sizes.
float sum_squares(const std::vector<Floats>& tensors, ThreadPool& pool);

}  // namespace jerboa::cpu
