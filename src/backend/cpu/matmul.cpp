#include "backend/cpu/matmul.h"

#include <algorithm>
#include <cstddef>

#include "backend/cpu/matmul_tasks.h"
#include "backend/cpu/scratch.h"
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul.cpp"
#include "base/integers.h"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each instruction set.
#include "backend/cpu/matmul_kernels-inl.h"
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"

#ifndef JERBOA_CPU_MATMUL_CPP
#define JERBOA_CPU_MATMUL_CPP
namespace jerboa::cpu {
namespace {

thread_local Scratch<float> packed_a, packed_b, tile_memory, expanded;  // per thread that computes a tile
thread_local Scratch<float> shared_a, shared_b;                         // per thread that requested the product

}  // namespace
}  // namespace jerboa::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

// The packed depth x tile of b stays in the L2 cache, a strip of a in L1.
constexpr std::int64_t most_depth = 384;
constexpr std::int64_t most_tile_rows = 144;
constexpr std::int64_t most_tile_columns = 256;
constexpr std::int64_t most_shared = std::int64_t{4} << 20;  // floats that are packed once for all tiles
// Tiles shrink to give more threads work, but not below about 20 microseconds each.
constexpr std::int64_t wanted_tiles = 32;
constexpr std::int64_t least_tile_work = std::int64_t{1} << 20;
constexpr std::int64_t least_shared_work = std::int64_t{4} << 20;

/// How a product is split, as a function of its sizes. Rows are split into strips of at most block_rows, columns into
/// panels of block_columns, the inner dimension into blocks; a tile is some strips by some panels, and one task.
struct Plan {
  const Matmul& matmul;
  std::int64_t batch = 1;
  std::int64_t strips = 0, panels = 0, depths = 0;
  std::int64_t row_tiles = 1, column_tiles = 1;
  const float* all_a = nullptr;  ///< packed: [depth block][strip][depth][block_rows]
  const float* all_b = nullptr;  ///< packed: [depth block][panel][depth][block_columns]

  explicit Plan(const Matmul& product) : matmul(product), batch(batch_size(product)) {
    strips = detail::divide_up(matmul.rows, block_rows);
    panels = detail::divide_up(matmul.columns, block_columns);
    depths = std::max<std::int64_t>(1, detail::divide_up(matmul.inner, most_depth));
    row_tiles = detail::divide_up(strips * block_rows, most_tile_rows);
    column_tiles = detail::divide_up(panels * block_columns, most_tile_columns);
    for (;;) {
      const std::int64_t rows = detail::divide_up(strips, row_tiles), columns = detail::divide_up(panels, column_tiles);
      const std::int64_t work = rows * block_rows * columns * block_columns * matmul.inner;
      if (batch * row_tiles * column_tiles >= wanted_tiles || work < 2 * least_tile_work) break;
      if (rows > 1 && (rows * block_rows >= columns * block_columns || columns == 1)) {
        row_tiles = std::min(strips, 2 * row_tiles);
      } else if (columns > 1) {
        column_tiles = std::min(panels, 2 * column_tiles);
      } else {
        break;
      }
    }
  }

  std::int64_t strip_begin(std::int64_t strip) const { return part(matmul.rows, strips, strip); }
  // For weights with scales, it is at a group boundary.
  std::int64_t depth_begin(std::int64_t block) const {
    if (matmul.weights == nullptr || matmul.inner % weight_group != 0) return part(matmul.inner, depths, block);
    return part(matmul.inner / weight_group, depths, block) * weight_group;
  }

  // For all_a and all_b: their sizes, and where a strip or panel begins.
  std::int64_t a_size() const { return strips * (matmul.inner * block_rows + depths * packed_stride(0, 0)); }
  std::int64_t b_size() const { return panels * (matmul.inner * block_columns + depths * packed_stride(0, 0)); }
  std::int64_t a_place(std::int64_t depth_block, std::int64_t strip) const {
    return place(strips, block_rows, depth_block, strip);
  }
  std::int64_t b_place(std::int64_t depth_block, std::int64_t panel) const {
    return place(panels, block_columns, depth_block, panel);
  }

 private:
  std::int64_t place(std::int64_t count, std::int64_t width, std::int64_t depth_block, std::int64_t number) const {
    const std::int64_t before = depth_begin(depth_block), depth = depth_begin(depth_block + 1) - before;
    return count * (before * width + depth_block * packed_stride(0, 0)) + number * packed_stride(depth, width);
  }
};

void pack_strips(const Plan& plan, std::int64_t batch, std::int64_t depth_block, std::int64_t first, std::int64_t end,
                 float* to, int worker) {
  const Matmul& m = plan.matmul;
  const std::int64_t k = plan.depth_begin(depth_block), depth = plan.depth_begin(depth_block + 1) - k;
  pack<block_rows>(
      m.a + offset_of(m.a_offsets, batch) + k * m.a_inner, m.a_row, m.a_inner,
      [&](std::int64_t strip) { return plan.strip_begin(strip); }, first, end, m.rows, depth, to);
  if (m.a_prologue != nullptr) m.a_prologue->apply(to, (end - first) * packed_stride(depth, block_rows), worker);
}

// Panel by panel: expands some columns, then packs them.
void pack_weights(const Matmul& m, std::int64_t k, std::int64_t depth, std::int64_t first, std::int64_t end,
                  float* to) {
  float* values = expanded.get(block_columns * depth);
  for (std::int64_t panel = first; panel < end; ++panel, to += packed_stride(depth, block_columns)) {
    const std::int64_t column = panel * block_columns;
    const std::int64_t columns = std::min<std::int64_t>(block_columns, m.columns - column);
    for (std::int64_t i = 0; i < columns; ++i) expand_weights(*m.weights, column + i, k, depth, values + i * depth);
    pack<block_columns>(values, depth, 1, columns, depth, to);
  }
}

void pack_panels(const Plan& plan, std::int64_t batch, std::int64_t depth_block, std::int64_t first, std::int64_t end,
                 float* to, int worker) {
  const Matmul& m = plan.matmul;
  const std::int64_t k = plan.depth_begin(depth_block), depth = plan.depth_begin(depth_block + 1) - k;
  if (m.weights != nullptr) return pack_weights(m, k, depth, first, end, to);
  pack<block_columns>(
      m.b + offset_of(m.b_offsets, batch) + k * m.b_inner, m.b_column, m.b_inner,
      [](std::int64_t panel) { return panel * block_columns; }, first, end, m.columns, depth, to);
  if (m.b_prologue != nullptr) m.b_prologue->apply(to, (end - first) * packed_stride(depth, block_columns), worker);
}

void multiply_tile(const Plan& plan, std::int64_t batch, std::int64_t tile_row, std::int64_t tile_column, int worker) {
  const Matmul& m = plan.matmul;
  const std::int64_t first_strip = part(plan.strips, plan.row_tiles, tile_row);
  const std::int64_t end_strip = part(plan.strips, plan.row_tiles, tile_row + 1);
  const std::int64_t first_panel = part(plan.panels, plan.column_tiles, tile_column);
  const std::int64_t end_panel = part(plan.panels, plan.column_tiles, tile_column + 1);
  const std::int64_t first_row = plan.strip_begin(first_strip), first_column = first_panel * block_columns;
  const std::int64_t columns = std::min(end_panel * block_columns, m.columns) - first_column;

  // Sums accumulate in c itself if its rows are contiguous and there is no epilogue; otherwise in a tile, which is only
  // one strip high if the inner dimension is one block.
  const bool in_place = m.epilogue == nullptr && m.c_column == 1;
  const std::int64_t width = (end_panel - first_panel) * block_columns;
  const bool keep_rows = plan.depths > 1;
  const std::int64_t height = keep_rows ? plan.strip_begin(end_strip) - first_row : block_rows;
  float* tile = in_place ? m.c + offset_of(m.c_offsets, batch) + first_row * m.c_row + first_column
                         : tile_memory.get(height * width + epilogue_padding);
  const std::int64_t tile_stride = in_place ? m.c_row : width;

  // For only a few panels it does not pay to pack a, unless its rows all map to the same cache sets.
  const bool direct_a = end_panel - first_panel <= 2 && m.a_row % 1024 != 0 && m.a_prologue == nullptr;

  for (std::int64_t depth_block = 0; depth_block < plan.depths; ++depth_block) {
    const std::int64_t before = plan.depth_begin(depth_block), depth = plan.depth_begin(depth_block + 1) - before;
    const float* b = nullptr;
    if (plan.all_b != nullptr) {
      b = plan.all_b + plan.b_place(depth_block, first_panel);
    } else {
      float* packed = packed_b.get((end_panel - first_panel) * packed_stride(depth, block_columns));
      pack_panels(plan, batch, depth_block, first_panel, end_panel, packed, worker);
      b = packed;
    }
    for (std::int64_t strip = first_strip; strip < end_strip; ++strip) {
      const std::int64_t row = plan.strip_begin(strip), rows = plan.strip_begin(strip + 1) - row;
      float* c = in_place || keep_rows ? tile + (row - first_row) * tile_stride : tile;
      Block block{.inner = depth,
                  .a_row = 1,
                  .a_inner = block_rows,
                  .b_inner = block_columns,
                  .c_row = tile_stride,
                  .accumulate = depth_block > 0};
      if (plan.all_a != nullptr) {
        block.a = plan.all_a + plan.a_place(depth_block, strip);
      } else if (direct_a) {
        block.a = m.a + offset_of(m.a_offsets, batch) + row * m.a_row + before * m.a_inner;
        block.a_row = m.a_row;
        block.a_inner = m.a_inner;
      } else {
        float* packed = packed_a.get(packed_stride(depth, block_rows));
        pack_strips(plan, batch, depth_block, strip, strip + 1, packed, worker);
        block.a = packed;
      }
      if (m.epilogue != nullptr && depth_block + 1 == plan.depths)
        m.epilogue->prepare(batch, row, rows, first_column, columns);
      for (std::int64_t column = 0; column < columns; column += block_columns) {
        block.b = b + column / block_columns * packed_stride(depth, block_columns);
        block.c = c + column;
        const std::int64_t block_width = std::min<std::int64_t>(block_columns, columns - column);
        if (block.a_row == 1) {
          multiply_block<true>(block, rows, block_width);
        } else {
          multiply_block<false>(block, rows, block_width);
        }
      }
      if (!in_place && depth_block + 1 == plan.depths) {
        finish(m, batch, row, rows, first_column, columns, c, tile_stride, worker);
      }
    }
  }
}

void matmul(const Matmul& product, ThreadPool& pool) {
  if (run_matmul_in_integers(product, pool, HWY_TARGET) || run_matmul_of_few(product, pool)) return;
  Plan plan(product);
  // Operands that several tiles use are packed once, by all threads.
  const std::int64_t work = product.rows * product.columns * product.inner;
  if (plan.batch == 1 && work >= least_shared_work) {
    float* a = nullptr;
    float* b = nullptr;
    if (plan.column_tiles > 1 && plan.a_size() <= most_shared) {
      plan.all_a = a = shared_a.get(plan.a_size());
    }
    if (plan.row_tiles > 1 && plan.b_size() <= most_shared) {
      plan.all_b = b = shared_b.get(plan.b_size());
    }
    struct Packing {
      const Plan& plan;
      float *a, *b;
      std::int64_t a_tasks, b_tasks;
    } packing{plan, a, b, a == nullptr ? 0 : plan.row_tiles, b == nullptr ? 0 : plan.column_tiles};
    pool.run((packing.a_tasks + packing.b_tasks) * plan.depths, [&packing](std::int64_t number, int worker) {
      const Plan& p = packing.plan;
      const std::int64_t depth_block = number % p.depths, group = number / p.depths;
      if (group < packing.a_tasks) {
        const std::int64_t first = part(p.strips, packing.a_tasks, group);
        pack_strips(p, 0, depth_block, first, part(p.strips, packing.a_tasks, group + 1),
                    packing.a + p.a_place(depth_block, first), worker);
      } else {
        const std::int64_t first = part(p.panels, packing.b_tasks, group - packing.a_tasks);
        pack_panels(p, 0, depth_block, first, part(p.panels, packing.b_tasks, group - packing.a_tasks + 1),
                    packing.b + p.b_place(depth_block, first), worker);
      }
    });
  }
  pool.run(plan.batch * plan.row_tiles * plan.column_tiles, [&plan](std::int64_t number, int worker) {
    const std::int64_t tile_row = number % plan.row_tiles, rest = number / plan.row_tiles;
    multiply_tile(plan, rest / plan.column_tiles, tile_row, rest % plan.column_tiles, worker);
  });
}

void small_matmul(const SmallMatmul& m, std::vector<float>& scratch) {
  const std::int64_t panels = detail::divide_up(m.columns, block_columns),
                     strips = detail::divide_up(m.rows, block_rows);
  const bool direct = m.b_column == 1;
  if (!direct) {
    const auto size = static_cast<std::size_t>(panels * block_columns * m.inner);
    if (scratch.size() < size) scratch.resize(size);
  }
  Block block{.inner = m.inner,
              .a_row = m.a_row,
              .a_inner = m.a_inner,
              .b_inner = direct ? m.b_inner : block_columns,
              .c_row = m.c_row,
              .scale = m.scale,
              .accumulate = m.accumulate};
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t column = panel * block_columns;
    const std::int64_t columns = std::min<std::int64_t>(block_columns, m.columns - column);
    if (direct) {
      block.b = m.b + column;
    } else {
      float* packed = scratch.data() + column * m.inner;
      pack<block_columns>(m.b + column * m.b_column, m.b_column, m.b_inner, columns, m.inner, packed);
      block.b = packed;
    }
    for (std::int64_t strip = 0; strip < strips; ++strip) {
      const std::int64_t row = part(m.rows, strips, strip), rows = part(m.rows, strips, strip + 1) - row;
      block.a = m.a + row * m.a_row;
      block.c = m.c + row * m.c_row + column;
      if (m.a_row == 1) {
        multiply_block<true>(block, rows, columns);
      } else {
        multiply_block<false>(block, rows, columns);
      }
    }
  }
}

}  // namespace
}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::cpu {

HWY_EXPORT(matmul);
HWY_EXPORT(small_matmul);

void run_matmul(const Matmul& matmul, ThreadPool& pool) {
  if (matmul.rows <= 0 || matmul.columns <= 0) return;
  HWY_DYNAMIC_DISPATCH(matmul)(matmul, pool);
}

void run_small_matmul(const SmallMatmul& matmul, std::vector<float>& scratch) {
  if (matmul.rows <= 0 || matmul.columns <= 0) return;
  HWY_DYNAMIC_DISPATCH(small_matmul)(matmul, scratch);
}

}  // namespace jerboa::cpu
#endif
