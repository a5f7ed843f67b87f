#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// out [rows, width] = the rows of dy [count, width] summed by id, in order; ids out of range are dropped.
void run_embedding_grad(const std::int32_t* ids, const float* dy, std::int64_t count, std::int64_t rows,
                        std::int64_t width, float* out, ThreadPool& pool);

/// x [outer, size, inner] with updates [outer, count, inner] put, or added, at indices (as updates) along the middle
/// axis, in order; indices out of range are dropped. out may be x.
template <class T>
struct ScatterProblem {
  std::int64_t outer = 1, size = 0, count = 0, inner = 1;
  const T* x = nullptr;
  const std::int32_t* indices = nullptr;
  const T* updates = nullptr;
  T* out = nullptr;
};
void run_scatter(const ScatterProblem<float>& problem, ThreadPool& pool);
void run_scatter(const ScatterProblem<std::int32_t>& problem, ThreadPool& pool);
void run_scatter_add(const ScatterProblem<float>& problem, ThreadPool& pool);
void run_scatter_add(const ScatterProblem<std::int32_t>& problem, ThreadPool& pool);

/// The cache [batch, heads, capacity, width] with the values at [batch, head, time] stored at positions [batch, time];
/// negative positions and those past the capacity are dropped, or in a ring taken modulo the capacity. Cache and out
/// are contiguous and may be the same, which saves the copy. Strides are in elements, of any size in bytes; a row's
/// width elements are contiguous. A paged cache is [blocks, heads, block, width]: slot p of a sequence is in block
/// table[batch, p / block], and is dropped if that is not a valid block. An 8-bit cache rounds values of f32: then
/// `width` is a row's words, and elements are four bytes on both sides.
struct CacheAppendProblem {
  std::int64_t batch = 0, heads = 0, capacity = 0, time = 0, width = 0;
  std::int64_t blocks = 0, block = 0;   ///< of a paged cache, whose capacity is that of the table
  const std::int32_t* table = nullptr;  ///< [batch, capacity / block]; null: not paged
  std::size_t element_size = 4;
  const void* cache = nullptr;
  const void* values = nullptr;
  std::array<std::int64_t, 3> value_strides{};
  const std::int32_t* positions = nullptr;
  std::array<std::int64_t, 2> position_strides{};
  void* out = nullptr;
  bool ring = false;
  std::int64_t packed_size = 0;  ///< features of a row to be rounded to 8 bits; 0: no rounding
};
void run_cache_append(const CacheAppendProblem& problem, ThreadPool& pool);

}  // namespace jerboa::cpu
