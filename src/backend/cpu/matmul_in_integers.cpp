#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/matmul_tasks.h"
#include "backend/cpu/rounded_rows.h"
#include "backend/cpu/scratch.h"
#include "base/integers.h"
#include "base/simd_targets.h"
// After simd_targets.h:
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#if HWY_ARCH_X86
#if HWY_COMPILER_GCC_ACTUAL  // GCC's headers use uninitialised variables on purpose
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

namespace jerboa::cpu {
namespace {

constexpr int most_rows = 12;               // for which columns of weights are multiplied without packing
constexpr int most_rows_before_panels = 4;  // if there are panels

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace avx2 {
#define JERBOA_VNNI 0
#include "backend/cpu/matmul_bytes-inl.h"
#undef JERBOA_VNNI
}  // namespace avx2
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace vnni {
#define JERBOA_VNNI 1
#include "backend/cpu/matmul_bytes-inl.h"
#include "backend/cpu/matmul_panels-inl.h"
#undef JERBOA_VNNI
}  // namespace vnni
HWY_POP_ATTRIBUTES

using Layout = RoundedRows::Layout;

bool has_vnni(std::int64_t target) { return target == HWY_AVX3 && __builtin_cpu_supports("avx512vnni"); }

thread_local Scratch<std::byte> rounded;                    // per thread that requested the product
thread_local Scratch<float> results;                        // per thread that computes some columns
thread_local Scratch<vnni::Panel::Group> groups_of_panels;  // the same

// Rounds all rows, on all threads if that is worthwhile.
RoundedRows round_rows(const Matmul& m, Layout layout, std::int64_t target, ThreadPool& pool) {
  const std::int64_t groups = m.inner / weight_group, count = m.rows * groups;
  RoundedRows result{.layout = layout, .rows = m.rows, .groups = groups};
  if (m.weights->dtype == DType::i4) result.unsigned_offset = 8;
  std::byte* next = rounded.get(count * (32 + 32 + 3 * 4));
  const auto take = [&](std::int64_t bytes) { return std::exchange(next, next + bytes); };
  result.values = reinterpret_cast<std::int8_t*>(take(count * 32));
  result.starts = reinterpret_cast<std::int32_t*>(take(count * 32));
  result.scales = reinterpret_cast<float*>(take(count * 4));
  result.sums = reinterpret_cast<float*>(take(count * 4));
  result.rounded_sums = reinterpret_cast<float*>(take(count * 4));
  const auto round = has_vnni(target) ? &vnni::round_row : &avx2::round_row;
  const float* a = m.a + offset_of(m.a_offsets, 0);
  constexpr std::int64_t task_values = 1 << 12;
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, task_values / m.inner);
  pool.run(detail::divide_up(m.rows, rows_per_task), [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * rows_per_task, m.rows);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) round(a + row * m.a_row, row, result);
  });
  return result;
}

void multiply_few_rows(const Matmul& m, std::int64_t target, ThreadPool& pool) {
  const bool nibbles = m.weights->dtype == DType::i4;
  const RoundedRows a = round_rows(m, nibbles ? Layout::nibbles : Layout::bytes, target, pool);
  const auto& functions = has_vnni(target) ? (nibbles ? vnni::columns_functions<true> : vnni::columns_functions<false>)
                                           : (nibbles ? avx2::columns_functions<true> : avx2::columns_functions<false>);
  const auto multiply = functions[static_cast<std::size_t>(m.rows - 1)];
  const ColumnTasks tasks = column_tasks(m.columns, m.inner, 8);
  pool.run(tasks.count, [&](std::int64_t task, int worker) {
    const std::int64_t column = task * tasks.columns_per_task;
    const std::int64_t columns = std::min(tasks.columns_per_task, m.columns - column);
    float* tile = results.get(m.rows * columns + epilogue_padding);
    multiply(a, *m.weights, column, columns, tile, columns);
    finish(m, 0, 0, m.rows, column, columns, tile, columns, worker);
  });
}

// A product with many rows, whose columns are processed panel by panel.
struct PanelProduct {
  const Matmul& matmul;
  const RoundedRows& a;
  std::int64_t panels = 0;

  // Processes panels [first, end) of the rows [begin_row, end_row); `then`: the one a thread will probably start next.
  void multiply(std::int64_t first, std::int64_t end, std::int64_t then, std::int64_t begin_row, std::int64_t end_row,
                int worker) const {
    // With few rows, some groups at a time: a packed panel then stays in the L1 cache until all rows have used it.
    const std::int64_t groups = end_row - begin_row <= tile_rows ? std::min(a.groups, groups_in_cache) : a.groups;
    vnni::Panel::Group* packed = groups_of_panels.get(groups);
    float* tile = results.get(tile_rows * vnni::panel_columns + epilogue_padding);
    for (std::int64_t number = first; number < end; ++number)
      for (std::int64_t begin = 0; begin < a.groups; begin += groups)
        multiply({packed, begin, std::min(begin + groups, a.groups), bytes_per_group()}, number,
                 number + 1 < end ? number + 1 : then, begin_row, end_row, tile, worker);
  }

 private:
  static constexpr std::int64_t tile_rows = 48, groups_in_cache = 16;

  std::int64_t bytes_per_group() const { return vnni::panel_columns * weight_group * bits(matmul.weights->dtype) / 8; }

  // Processes some groups of a panel; `then`: the next panel.
  void multiply(const vnni::Panel& panel, std::int64_t number, std::int64_t then, std::int64_t begin_row,
                std::int64_t end_row, float* tile, int worker) const {
    const Matmul& m = matmul;
    const auto& functions = m.weights->mins != nullptr ? vnni::panel_functions<true> : vnni::panel_functions<false>;
    const std::int64_t column = number * vnni::panel_columns;
    const std::int64_t columns = std::min(vnni::panel_columns, m.columns - column);
    (m.weights->dtype == DType::i4 ? vnni::pack_panel<true> : vnni::pack_panel<false>)(*m.weights, column, columns,
                                                                                       a.groups, panel);
    const std::byte* next = then < panels ? m.weights->values + then * a.groups * panel.bytes_per_group : nullptr;
    for (std::int64_t begin = begin_row; begin < end_row; begin += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, end_row - begin);
      const std::int64_t blocks = detail::divide_up(rows, vnni::panel_rows);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t row = part(rows, blocks, block), some = part(rows, blocks, block + 1) - row;
        functions[static_cast<std::size_t>(some - 1)](a, begin + row, panel, std::exchange(next, nullptr),
                                                      tile + row * vnni::panel_columns);
      }
      if (panel.end == a.groups) finish(m, 0, begin, rows, column, columns, tile, vnni::panel_columns, worker);
    }
  }
};

// A task is some panels and all rows, or one panel and some of the rows if that would give too few tasks.
void multiply_many_rows(const Matmul& m, ThreadPool& pool) {
  constexpr std::int64_t wanted_tasks = 16, most_panels = 8, least_rows = 96;
  const RoundedRows a = round_rows(m, Layout::panels, HWY_AVX3, pool);
  const PanelProduct product{m, a, detail::divide_up(m.columns, vnni::panel_columns)};
  const std::int64_t panels_per_task = std::clamp<std::int64_t>(product.panels / wanted_tasks, 1, most_panels);
  const std::int64_t across = detail::divide_up(product.panels, panels_per_task);
  const std::int64_t parts = std::clamp<std::int64_t>(wanted_tasks / across, 1, detail::divide_up(m.rows, least_rows));
  pool.run(across * parts, [&](std::int64_t task, int worker) {
    const std::int64_t first = task / parts * panels_per_task;
    const std::int64_t then = first + detail::divide_up(pool.size(), parts) * panels_per_task;
    product.multiply(first, std::min(first + panels_per_task, product.panels), then, part(m.rows, parts, task % parts),
                     part(m.rows, parts, task % parts + 1), worker);
  });
}

}  // namespace

bool run_matmul_in_integers(const Matmul& m, ThreadPool& pool, std::int64_t target) {
  if (!m.integer_products || m.weights == nullptr || m.weights->scales == nullptr) return false;
  if (m.inner == 0 || m.a_inner != 1 || m.a_prologue != nullptr) return false;
  if (m.weights->scale_dtype != DType::f16 || batch_size(m) != 1) return false;
  if (target != HWY_AVX2 && target != HWY_AVX3) return false;
  if (m.rows <= (has_vnni(target) ? most_rows_before_panels : most_rows))
    multiply_few_rows(m, target, pool);
  else if (has_vnni(target))
    multiply_many_rows(m, pool);
  else
    return false;
  return true;
}

}  // namespace jerboa::cpu

#else
namespace jerboa::cpu {
bool run_matmul_in_integers(const Matmul&, ThreadPool&, std::int64_t) { return false; }
}  // namespace jerboa::cpu
#endif
