#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/matmul.h"

// Shared by the implementations of a product.
namespace jerboa::cpu {

constexpr std::int64_t epilogue_padding = 64;  ///< the epilogue may read this many values past the end of a tile

/// The products of `matmul`'s batch; an operand without offsets is the same in all of them.
std::int64_t batch_size(const Matmul& matmul);

inline std::int64_t offset_of(const std::vector<std::int64_t>& offsets, std::int64_t batch) {
  return offsets.empty() ? 0 : offsets[static_cast<std::size_t>(batch)];
}

/// Where a range begins when `count` items are split into `parts` ranges of nearly equal size.
inline std::int64_t part(std::int64_t count, std::int64_t parts, std::int64_t number) { return count * number / parts; }

/// Passes finished rows of a tile to the epilogue, or to c if its columns are not contiguous.
void finish(const Matmul& matmul, std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t columns, const float* tile, std::int64_t tile_stride, int worker);

/// How a product of few rows is split into tasks, each of which computes some columns.
struct ColumnTasks {
  std::int64_t columns_per_task = 0, count = 0;
};

/// `unit`: the number of a task's columns is a multiple of this.
ColumnTasks column_tasks(std::int64_t columns, std::int64_t inner, std::int64_t unit);

/// Computes a product of few rows or columns without packing, if that is possible; returns whether it did.
bool run_matmul_of_few(const Matmul& matmul, ThreadPool& pool);

/// Computes a product with int8 or int4 weights whose rows are rounded to 8 bits, if that is possible and fast for this
/// many rows; returns whether it did. `target` is Highway's, which callers know: querying the CPU takes many
/// microseconds in a virtual machine.
bool run_matmul_in_integers(const Matmul& matmul, ThreadPool& pool, std::int64_t target);

}  // namespace jerboa::cpu
