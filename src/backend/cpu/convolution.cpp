#include "backend/cpu/convolution.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/scratch.h"
#include "base/integers.h"

// A convolution is a matrix product per image and group: y[o, p] = sum over taps of weight[o, tap] * columns[tap, p],
// where a tap is a channel and an offset in the kernel, p an output position, and columns[tap, p] the element of x
// under that tap. Columns exist only for a block of positions at a time.
namespace jerboa::cpu {
namespace {

// Sizes of one group, and of the blocks of positions.
struct Layout {
  std::int64_t in_area, out_area, kernel_area;
  std::int64_t channels, out_channels;  // per group
  std::int64_t taps, block, blocks;
  bool direct;  // columns are x itself

  explicit Layout(const Convolution& c)
      : in_area(c.in[0] * c.in[1]),
        out_area(c.out[0] * c.out[1]),
        kernel_area(c.kernel[0] * c.kernel[1]),
        channels(c.channels / c.groups),
        out_channels(c.out_channels / c.groups),
        taps(channels * kernel_area) {
    constexpr std::int64_t wanted_columns = 1 << 16;  // elements: a quarter of a megabyte, for the L2 cache
    const std::int64_t wanted = std::clamp<std::int64_t>(wanted_columns / std::max<std::int64_t>(taps, 1), 64, 2048);
    blocks = detail::divide_up(out_area, wanted);
    block = blocks > 0 ? (detail::divide_up(out_area, blocks) + 15) / 16 * 16 : 0;
    blocks = block > 0 ? detail::divide_up(out_area, block) : 0;
    using Pair = std::array<std::int64_t, 2>;
    direct = c.kernel == Pair{1, 1} && c.stride == Pair{1, 1} && c.padding == Pair{0, 0};
  }
  std::int64_t block_size(std::int64_t index) const { return std::min(block, out_area - index * block); }
  // Where image n's group g begins in x and y, and group g in the weight.
  std::int64_t x_at(const Convolution& c, std::int64_t n, std::int64_t g) const {
    return (n * c.channels + g * channels) * in_area;
  }
  std::int64_t y_at(const Convolution& c, std::int64_t n, std::int64_t g) const {
    return (n * c.out_channels + g * out_channels) * out_area;
  }
  std::int64_t weight_at(std::int64_t g) const { return g * out_channels * taps; }
};

// Calls visit(tap, p, count, x) for each run of output positions in one row for which a tap reads x: positions p to p +
// count of the block read the elements x, x + stride, … of the group; skip(tap, p, count) for those in the padding.
template <class Visit, class Skip>
void for_each_run(const Convolution& c, const Layout& layout, std::int64_t first, std::int64_t count, Visit visit,
                  Skip skip) {
  const std::int64_t width = c.out[1];
  for (std::int64_t tap = 0; tap < layout.taps; ++tap) {
    const std::int64_t channel = tap / layout.kernel_area, place = tap % layout.kernel_area;
    const std::int64_t shift_y = place / c.kernel[1] * c.dilation[0] - c.padding[0];
    const std::int64_t shift_x = place % c.kernel[1] * c.dilation[1] - c.padding[1];
    // Output columns whose element lies inside the image.
    const std::int64_t inside = std::min(detail::divide_up(-shift_x, c.stride[1]), width);
    const std::int64_t inside_end = std::clamp(detail::divide_up(c.in[1] - shift_x, c.stride[1]), inside, width);
    std::int64_t row = first / width, begin = first % width;
    for (std::int64_t p = 0; p < count; ++row, begin = 0) {
      const std::int64_t end = std::min(width, begin + count - p);
      const std::int64_t y = row * c.stride[0] + shift_y;
      if (y < 0 || y >= c.in[0]) {
        skip(tap, p, end - begin);
      } else {
        const std::int64_t from = std::clamp(inside, begin, end), to = std::clamp(inside_end, from, end);
        if (begin < from) skip(tap, p, from - begin);
        if (from < to)
          visit(tap, p + from - begin, to - from,
                channel * layout.in_area + y * c.in[1] + from * c.stride[1] + shift_x);
        if (to < end) skip(tap, p + to - begin, end - to);
      }
      p += end - begin;
    }
  }
}

// Runs are often too short for a call to memcpy.
void copy_run(const float* from, std::int64_t count, float* to) {
  constexpr std::int64_t piece = 8;
  if (count < piece) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
    return;
  }
  if (count > 8 * piece) {
    std::copy_n(from, count, to);
    return;
  }
  for (std::int64_t i = 0; i < count - piece; i += piece) std::memcpy(to + i, from + i, piece * sizeof(float));
  std::memcpy(to + count - piece, from + count - piece, piece * sizeof(float));
}

// The columns of a block of positions, with a row stride of `row`.
struct Columns {
  const float* data;
  std::int64_t row;
};

Columns columns_of(const Convolution& c, const Layout& layout, const float* x, std::int64_t first, std::int64_t count,
                   Scratch<float>& scratch) {
  if (layout.direct) return {x + first, layout.in_area};
  float* columns = scratch.get(layout.taps * layout.block);
  const std::int64_t stride = c.stride[1];
  for_each_run(
      c, layout, first, count,
      [&](std::int64_t tap, std::int64_t p, std::int64_t run, std::int64_t at) {
        float* to = columns + tap * layout.block + p;
        const float* from = x + at;
        if (stride == 1)
          copy_run(from, run, to);
        else
          for (std::int64_t i = 0; i < run; ++i) to[i] = from[i * stride];
      },
      [&](std::int64_t tap, std::int64_t p, std::int64_t run) {
        std::fill_n(columns + tap * layout.block + p, run, 0.0F);
      });
  return {columns, layout.block};
}

struct Workspace {
  Scratch<float> columns;
  std::vector<float> matmul;
};

Workspace& workspace() {
  static thread_local Workspace mine;
  return mine;
}

}  // namespace

void run_conv2d(const Convolution& c, const float* x, const float* weight, const float* bias, float* y,
                ThreadPool& pool) {
  const Layout layout(c);
  pool.run(c.batch * c.groups * layout.blocks, [&](std::int64_t task, int) {
    const std::int64_t index = task % layout.blocks, g = task / layout.blocks % c.groups;
    const std::int64_t n = task / layout.blocks / c.groups;
    const std::int64_t first = index * layout.block, count = layout.block_size(index);
    const Columns columns = columns_of(c, layout, x + layout.x_at(c, n, g), first, count, workspace().columns);
    float* out = y + layout.y_at(c, n, g) + first;
    if (bias != nullptr)
      for (std::int64_t o = 0; o < layout.out_channels; ++o)
        std::fill_n(out + o * layout.out_area, count, bias[g * layout.out_channels + o]);
    SmallMatmul product;
    product.rows = layout.out_channels, product.columns = count, product.inner = layout.taps;
    product.a = weight + layout.weight_at(g), product.a_row = layout.taps, product.a_inner = 1;
    product.b = columns.data, product.b_inner = columns.row, product.b_column = 1;
    product.c = out, product.c_row = layout.out_area;
    product.accumulate = bias != nullptr;
    run_small_matmul(product, workspace().matmul);
  });
}

void run_conv2d_input_grad(const Convolution& c, const float* dy, const float* weight, float* dx, ThreadPool& pool) {
  const Layout layout(c);
  pool.run(c.batch * c.groups, [&](std::int64_t task, int) {
    const std::int64_t g = task % c.groups, n = task / c.groups;
    float* image = dx + layout.x_at(c, n, g);
    if (!layout.direct) std::fill_n(image, layout.channels * layout.in_area, 0.0F);
    for (std::int64_t index = 0; index < layout.blocks; ++index) {
      const std::int64_t first = index * layout.block, count = layout.block_size(index);
      float* columns = layout.direct ? image + first : workspace().columns.get(layout.taps * layout.block);
      SmallMatmul product;
      product.rows = layout.taps, product.columns = count, product.inner = layout.out_channels;
      product.a = weight + layout.weight_at(g), product.a_row = 1, product.a_inner = layout.taps;
      product.b = dy + layout.y_at(c, n, g) + first, product.b_inner = layout.out_area, product.b_column = 1;
      product.c = columns, product.c_row = layout.direct ? layout.in_area : layout.block;
      run_small_matmul(product, workspace().matmul);
      if (layout.direct) continue;
      const std::int64_t stride = c.stride[1];
      for_each_run(
          c, layout, first, count,
          [&](std::int64_t tap, std::int64_t p, std::int64_t run, std::int64_t at) {
            const float* from = columns + tap * layout.block + p;
            float* to = image + at;
            if (stride == 1)
              for (std::int64_t i = 0; i < run; ++i) to[i] += from[i];
            else
              for (std::int64_t i = 0; i < run; ++i) to[i * stride] += from[i];
          },
          [](std::int64_t, std::int64_t, std::int64_t) {});
    }
  });
}

void run_conv2d_weight_grad(const Convolution& c, const float* x, const float* dy, float* dweight, ThreadPool& pool) {
  // Tasks are blocks of output channels and, as far as memory for partial sums allows, parts of the batch.
  constexpr std::int64_t channel_block = 64, most_parts = 16, most_partial_floats = 1 << 20;
  const Layout layout(c);
  const std::int64_t weights = c.out_channels * layout.taps;
  if (weights == 0) return;
  const std::int64_t channel_blocks = detail::divide_up(layout.out_channels, channel_block);
  const std::int64_t parts =
      std::clamp<std::int64_t>(most_partial_floats / weights, 1, std::clamp<std::int64_t>(c.batch, 1, most_parts));
  static thread_local Scratch<float> scratch;
  float* partial = parts > 1 ? scratch.get(parts * weights) : dweight;
  pool.run(parts * c.groups * channel_blocks, [&](std::int64_t task, int) {
    const std::int64_t channel = task % channel_blocks * channel_block, g = task / channel_blocks % c.groups;
    const std::int64_t part = task / channel_blocks / c.groups;
    const std::int64_t rows = std::min(channel_block, layout.out_channels - channel);
    float* to = partial + part * weights + layout.weight_at(g) + channel * layout.taps;
    std::fill_n(to, rows * layout.taps, 0.0F);
    for (std::int64_t n = part * c.batch / parts; n < (part + 1) * c.batch / parts; ++n)
      for (std::int64_t index = 0; index < layout.blocks; ++index) {
        const std::int64_t first = index * layout.block, count = layout.block_size(index);
        const Columns columns = columns_of(c, layout, x + layout.x_at(c, n, g), first, count, workspace().columns);
        SmallMatmul product;
        product.rows = rows, product.columns = layout.taps, product.inner = count;
        product.a = dy + layout.y_at(c, n, g) + channel * layout.out_area + first;
        product.a_row = layout.out_area, product.a_inner = 1;
        product.b = columns.data, product.b_inner = 1, product.b_column = columns.row;
        product.c = to, product.c_row = layout.taps;
        product.accumulate = true;
        run_small_matmul(product, workspace().matmul);
      }
  });
  if (parts == 1) return;
  constexpr std::int64_t sum_block = 4096;
  pool.run(detail::divide_up(weights, sum_block), [&](std::int64_t task, int) {
    const std::int64_t begin = task * sum_block, end = std::min(begin + sum_block, weights);
    std::copy(partial + begin, partial + end, dweight + begin);
    for (std::int64_t part = 1; part < parts; ++part)
      for (std::int64_t i = begin; i < end; ++i) dweight[i] += partial[part * weights + i];
  });
}

}  // namespace jerboa::cpu
