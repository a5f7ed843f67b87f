#pragma once

#include <cstdint>

#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// A contiguous tensor seen along one axis: [outer, length, inner].
struct Lines {
  std::int64_t outer = 1, length = 0, inner = 1;
};

/// Running sums along the axis, or from its end. y may be x. i32 wraps.
void run_cumsum(const Lines& lines, const float* x, float* y, bool reverse, ThreadPool& pool);
void run_cumsum(const Lines& lines, const std::int32_t* x, std::int32_t* y, bool reverse, ThreadPool& pool);

/// Running maxima along the axis, or from its end, and their positions along it. NaN is the largest value; ties give
/// the first position.
void run_cummax(const Lines& lines, const float* x, float* y, std::int32_t* indices, bool reverse, ThreadPool& pool);
void run_cummax(const Lines& lines, const std::int32_t* x, std::int32_t* y, std::int32_t* indices, bool reverse,
                ThreadPool& pool);
void run_cummax(const Lines& lines, const std::uint32_t* x, std::uint32_t* y, std::int32_t* indices, bool reverse,
                ThreadPool& pool);

}  // namespace jerboa::cpu
