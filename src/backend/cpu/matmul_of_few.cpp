#include <algorithm>
#include <cstddef>

#include "backend/cpu/matmul_tasks.h"
#include "backend/cpu/scratch.h"
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul_of_few.cpp"
#include "base/integers.h"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each instruction set.
#include "backend/cpu/matmul_integers-inl.h"
#include "backend/cpu/matmul_rows-inl.h"
#include "hwy/highway.h"

#ifndef JERBOA_CPU_MATMUL_OF_FEW_CPP
#define JERBOA_CPU_MATMUL_OF_FEW_CPP
namespace jerboa::cpu {
namespace {

constexpr std::int64_t few_columns = 4;
// A task reads at least about this many values of the large operand.
constexpr std::int64_t task_values = std::int64_t{1} << 16;
constexpr std::int64_t most_tasks = 32;  // enough for many threads

thread_local Scratch<float> results, expanded;  // per thread that computes some columns

}  // namespace
}  // namespace jerboa::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

/// A product of few rows, or of few columns; in the latter case `turned` is set, and c is the transpose of the result.
struct RowsPlan {
  const Matmul& matmul;
  bool turned = false, along = false;
  std::int64_t rows = 0, columns = 0;
  ColumnTasks tasks{};  ///< per product
};

void multiply_few(const RowsPlan& plan, std::int64_t batch, std::int64_t task, int worker) {
  const Matmul& m = plan.matmul;
  const std::int64_t column = task * plan.tasks.columns_per_task;
  const std::int64_t columns = std::min(plan.tasks.columns_per_task, plan.columns - column);
  const float* a = m.a + offset_of(m.a_offsets, batch);
  const float* b = m.b + offset_of(m.b_offsets, batch);
  float* tile = results.get(2 * plan.rows * plan.tasks.columns_per_task + epilogue_padding);
  RowsBlock block{.columns = columns, .inner = m.inner, .c = tile, .c_row = columns};
  if (m.weights != nullptr) {
    block.a = a, block.a_row = m.a_row, block.a_inner = m.a_inner;
    const bool whole_vectors = m.inner % weight_group == 0;
    if (m.weights->scales == nullptr && plan.rows == 1 && m.a_inner == 1 && whole_vectors) {
      const bool brain = m.weights->dtype == DType::bf16;
      (brain ? multiply_row_of_halves<true> : multiply_row_of_halves<false>)(a, *m.weights, column, columns, m.inner,
                                                                             tile);
      return finish(m, batch, 0, 1, column, columns, tile, columns, worker);
    }
#if HWY_TARGET != HWY_SCALAR
    if (m.integer_products && m.weights->scales != nullptr)
      integer_rows_function(plan.rows)(block, *m.weights, column);
    else
#endif
      expanded_rows_function(plan.rows)(block, *m.weights, column, expanded.get(8 * dot_depth));
    return finish(m, batch, 0, plan.rows, column, columns, tile, columns, worker);
  }
  if (plan.turned) {
    block.a = b, block.a_row = m.b_column, block.a_inner = m.b_inner;
    block.b = a + column * m.a_row, block.b_inner = m.a_inner, block.b_column = m.a_row;
  } else {
    block.a = a, block.a_row = m.a_row, block.a_inner = m.a_inner;
    block.b = b + column * m.b_column, block.b_inner = m.b_inner, block.b_column = m.b_column;
  }
  rows_function(plan.rows, plan.along)(block);
  if (!plan.turned) return finish(m, batch, 0, plan.rows, column, columns, tile, columns, worker);
  float* turned = tile;
  if (plan.rows > 1) {
    turned = tile + plan.rows * columns;
    for (std::int64_t i = 0; i < plan.rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) turned[j * plan.rows + i] = tile[i * columns + j];
    }
  }
  finish(m, batch, column, columns, 0, plan.rows, turned, plan.rows, worker);
}

}  // namespace

bool matmul_of_few(const Matmul& m, ThreadPool& pool) {
  if (m.a_prologue != nullptr || m.b_prologue != nullptr) return false;
  RowsPlan plan{m};
  if (m.weights != nullptr) {
    if (m.rows > few_rows) return false;
  } else if (m.rows <= few_rows && (m.b_column == 1 || m.b_inner == 1)) {
    plan.along = m.b_column == 1;
  } else if (m.columns <= few_columns && (m.a_row == 1 || m.a_inner == 1)) {
    plan.turned = true;
    plan.along = m.a_row == 1;
  } else {
    return false;
  }
  plan.rows = plan.turned ? m.columns : m.rows;
  plan.columns = plan.turned ? m.rows : m.columns;
  plan.tasks = column_tasks(plan.columns, m.inner, plan.along ? 256 : 8);
  pool.run(batch_size(m) * plan.tasks.count, [&plan](std::int64_t number, int worker) {
    multiply_few(plan, number / plan.tasks.count, number % plan.tasks.count, worker);
  });
  return true;
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::cpu {

HWY_EXPORT(matmul_of_few);

std::int64_t batch_size(const Matmul& matmul) {
  return static_cast<std::int64_t>(
      std::max({std::size_t{1}, matmul.a_offsets.size(), matmul.b_offsets.size(), matmul.c_offsets.size()}));
}

void finish(const Matmul& m, std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column,
            std::int64_t columns, const float* tile, std::int64_t tile_stride, int worker) {
  if (m.epilogue != nullptr) {
    m.epilogue->apply(batch, row, rows, column, columns, tile, tile_stride, worker);
    return;
  }
  float* c = m.c + offset_of(m.c_offsets, batch) + row * m.c_row + column * m.c_column;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) c[i * m.c_row + j * m.c_column] = tile[i * tile_stride + j];
  }
}

ColumnTasks column_tasks(std::int64_t columns, std::int64_t inner, std::int64_t unit) {
  // Long stretches of a large matrix, so that only their beginnings are not prefetched.
  const std::int64_t least = task_values / std::max<std::int64_t>(1, inner);
  const std::int64_t wanted = std::clamp<std::int64_t>(std::max(least, columns / most_tasks), unit, 1024);
  const std::int64_t tasks = detail::divide_up(columns, wanted);
  const std::int64_t columns_per_task = detail::divide_up(detail::divide_up(columns, tasks), unit) * unit;
  return {columns_per_task, detail::divide_up(columns, columns_per_task)};
}

bool run_matmul_of_few(const Matmul& matmul, ThreadPool& pool) {
  return HWY_DYNAMIC_DISPATCH(matmul_of_few)(matmul, pool);
}

}  // namespace jerboa::cpu
#endif
