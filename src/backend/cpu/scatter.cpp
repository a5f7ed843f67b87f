#include "backend/cpu/scatter.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/packed_rows.h"
#include "backend/cpu/scratch.h"
#include "base/integers.h"

namespace jerboa::cpu {
namespace {

bool in_range(std::int64_t index, std::int64_t size) { return 0 <= index && index < size; }

std::int32_t sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
float sum(float a, float b) { return a + b; }

// A task owns some adjacent lines along the axis, so that it can process their indices in order.
template <bool add, class T>
void scatter(const ScatterProblem<T>& problem, ThreadPool& pool) {
  constexpr std::int64_t block = 256;
  const std::int64_t blocks = detail::divide_up(problem.inner, block);
  pool.run(problem.outer * blocks, [&](std::int64_t task, int) {
    const std::int64_t outer = task / blocks, first = task % blocks * block;
    const std::int64_t width = std::min(block, problem.inner - first);
    const std::int64_t start = outer * problem.size * problem.inner + first;
    T* out = problem.out + start;
    if (problem.out != problem.x)
      for (std::int64_t row = 0; row < problem.size; ++row)
        std::copy_n(problem.x + start + row * problem.inner, width, out + row * problem.inner);
    for (std::int64_t p = 0; p < problem.count; ++p) {
      const std::int64_t from = (outer * problem.count + p) * problem.inner + first;
      for (std::int64_t i = 0; i < width; ++i) {
        const std::int64_t to = problem.indices[from + i];
        if (!in_range(to, problem.size)) continue;
        T& element = out[to * problem.inner + i];
        element = add ? sum(element, problem.updates[from + i]) : problem.updates[from + i];
      }
    }
  });
}

// Positions ordered by id, stably: those of id i are positions[starts[i]] to positions[starts[i + 1]].
struct Buckets {
  std::int64_t* starts;
  std::int64_t* positions;
};

Buckets bucket(const std::int32_t* ids, std::int64_t count, std::int64_t rows) {
  static thread_local Scratch<std::int64_t> scratch;
  std::int64_t* starts = scratch.get(rows + 2 + count);
  std::int64_t* positions = starts + rows + 2;
  // Counts are stored two slots ahead, so that filling the buckets leaves each start in its place.
  std::fill_n(starts, rows + 2, 0);
  for (std::int64_t i = 0; i < count; ++i)
    if (in_range(ids[i], rows)) ++starts[ids[i] + 2];
  for (std::int64_t row = 2; row < rows + 2; ++row) starts[row] += starts[row - 1];
  for (std::int64_t i = 0; i < count; ++i)
    if (in_range(ids[i], rows)) positions[starts[ids[i] + 1]++] = i;
  return {starts, positions};
}

}  // namespace

void run_embedding_grad(const std::int32_t* ids, const float* dy, std::int64_t count, std::int64_t rows,
                        std::int64_t width, float* out, ThreadPool& pool) {
  if (rows == 0 || width == 0) return;
  const Buckets buckets = bucket(ids, count, rows);
  // A task owns some rows and some columns: columns too, because a few ids may hold most of the positions.
  constexpr std::int64_t column_block = 128, wanted_elements = 1 << 14;
  const std::int64_t column_blocks = detail::divide_up(width, column_block);
  const std::int64_t row_block =
      std::max<std::int64_t>(wanted_elements / std::min(width, column_block) * rows / (rows + count), 1);
  pool.run(detail::divide_up(rows, row_block) * column_blocks, [&](std::int64_t task, int) {
    const std::int64_t column = task % column_blocks * column_block, columns = std::min(column_block, width - column);
    const std::int64_t end = std::min((task / column_blocks + 1) * row_block, rows);
    for (std::int64_t row = task / column_blocks * row_block; row < end; ++row) {
      float* to = out + row * width + column;
      std::fill_n(to, columns, 0.0F);
      for (std::int64_t i = buckets.starts[row]; i < buckets.starts[row + 1]; ++i) {
        const float* from = dy + buckets.positions[i] * width + column;
        for (std::int64_t j = 0; j < columns; ++j) to[j] += from[j];
      }
    }
  });
}

void run_scatter(const ScatterProblem<float>& problem, ThreadPool& pool) { scatter<false>(problem, pool); }
void run_scatter(const ScatterProblem<std::int32_t>& problem, ThreadPool& pool) { scatter<false>(problem, pool); }
void run_scatter_add(const ScatterProblem<float>& problem, ThreadPool& pool) { scatter<true>(problem, pool); }
void run_scatter_add(const ScatterProblem<std::int32_t>& problem, ThreadPool& pool) { scatter<true>(problem, pool); }

void run_cache_append(const CacheAppendProblem& problem, ThreadPool& pool) {
  const bool paged = problem.table != nullptr;
  const std::int64_t blocks = paged ? problem.blocks : problem.batch, block = paged ? problem.block : problem.capacity;
  const auto element = static_cast<std::int64_t>(problem.element_size);
  const std::int64_t row = problem.width * element, head = block * row;
  if (head == 0) return;
  if (problem.out != problem.cache)
    pool.run(blocks * problem.heads, [&](std::int64_t task, int) {
      std::memcpy(static_cast<char*>(problem.out) + task * head, static_cast<const char*>(problem.cache) + task * head,
                  static_cast<std::size_t>(head));
    });
  // A task is one head of all sequences, because two of them may share a block: the last one then wins.
  const auto append = [&](std::int64_t h, int) {
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t t = 0; t < problem.time; ++t) {
        std::int64_t slot = problem.positions[b * problem.position_strides[0] + t * problem.position_strides[1]];
        if (slot < 0) continue;
        if (problem.ring && problem.capacity > 0) slot %= problem.capacity;
        if (slot >= problem.capacity) continue;
        const std::int64_t number = paged ? problem.table[b * (problem.capacity / block) + slot / block] : b;
        if (!in_range(number, blocks)) continue;
        const std::int64_t from =
            b * problem.value_strides[0] + h * problem.value_strides[1] + t * problem.value_strides[2];
        char* to = static_cast<char*>(problem.out) + (number * problem.heads + h) * head + slot % block * row;
        if (problem.packed_size > 0)
          pack_row(static_cast<const float*>(problem.values) + from, problem.packed_size,
                   reinterpret_cast<std::uint32_t*>(to));
        else
          std::memcpy(to, static_cast<const char*>(problem.values) + from * element, static_cast<std::size_t>(row));
      }
  };
  constexpr std::int64_t few_bytes = 1 << 15;
  if (problem.batch * problem.time * problem.heads * row <= few_bytes)
    pool.run_alone(problem.heads, append);
  else
    pool.run(problem.heads, append);
}

}  // namespace jerboa::cpu
