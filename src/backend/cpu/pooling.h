#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// Windows over contiguous planes: `planes` is batch * channels. Pairs are vertical, horizontal.
struct Pooling {
  std::int64_t planes = 0;
  std::array<std::int64_t, 2> in{}, out{}, kernel{2, 2}, stride{2, 2}, padding{0, 0};
};

void run_max_pool2d(const Pooling& pooling, const float* x, float* y, ThreadPool& pool);
/// dy goes to the first maximum of each window.
void run_max_pool2d_grad(const Pooling& pooling, const float* x, const float* dy, float* dx, ThreadPool& pool);
/// The mean over the whole window, padding counted.
void run_avg_pool2d(const Pooling& pooling, const float* x, float* y, ThreadPool& pool);
void run_avg_pool2d_grad(const Pooling& pooling, const float* dy, float* dx, ThreadPool& pool);

}  // namespace jerboa::cpu
