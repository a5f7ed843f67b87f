#pragma once

#include <cstdint>

#include "backend/cpu/scan.h"
#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// The k largest values along the axis in descending order, stable, and their positions:
/// values and indices are [outer, k, inner]; k is at most the length.
void run_top_k(const Lines& lines, const float* x, std::int64_t k, float* values, std::int32_t* indices,
               ThreadPool& pool);
void run_top_k(const Lines& lines, const std::int32_t* x, std::int64_t k, std::int32_t* values, std::int32_t* indices,
               ThreadPool& pool);

/// The positions that sort along the axis, stably.
void run_argsort(const Lines& lines, const float* x, bool descending, std::int32_t* indices, ThreadPool& pool);
void run_argsort(const Lines& lines, const std::int32_t* x, bool descending, std::int32_t* indices, ThreadPool& pool);

}  // namespace jerboa::cpu
