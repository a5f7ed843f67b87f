// The innermost loops of the matrix product, compiled once per instruction set: packing of operands, and the block of c
// that lives in registers.

#if defined(JERBOA_CPU_MATMUL_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_MATMUL_KERNELS_INL_H
#undef JERBOA_CPU_MATMUL_KERNELS_INL_H
#else
#define JERBOA_CPU_MATMUL_KERNELS_INL_H
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
constexpr int lanes = static_cast<int>(hn::MaxLanes(Floats()));

// A block of c is block_rows x block_vectors vectors: all registers except those for a row of b and a value of a.
#if HWY_TARGET == HWY_AVX3
constexpr int block_rows = 12;
#elif HWY_TARGET == HWY_AVX2
constexpr int block_rows = 6;
#else
constexpr int block_rows = 4;
#endif
constexpr int block_vectors = 2;
constexpr int block_columns = block_vectors * lanes;

#include "backend/cpu/repeat-inl.h"

/// Loads the first `count` lanes, with zeros in the others. Reads nothing beyond them.
HWY_INLINE Vector load_first(const float* from, std::size_t count) {
  const Floats d;
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float copy[lanes] = {};
  for (std::size_t i = 0; i < count; ++i) copy[i] = from[i];
  return hn::Load(d, copy);
#else
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
}

HWY_INLINE void store_first(Vector value, float* to, std::size_t count) {
  const Floats d;
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float copy[lanes];
  hn::Store(value, d, copy);
  for (std::size_t i = 0; i < count; ++i) to[i] = copy[i];
#else
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#endif
}

/// A block of c: c = (accumulate ? c : 0) + scale * a b.
struct Block {
  std::int64_t inner = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_inner = 0;
  const float* b = nullptr;
  std::int64_t b_inner = 0;  ///< columns are contiguous
  float* c = nullptr;
  std::int64_t c_row = 0;
  std::size_t last = lanes;  ///< columns in the last vector
  float scale = 1;
  bool accumulate = false;
};

/// `adjacent`: a_row is 1. `partial`: the last vector has only block.last columns.
template <int rows, int vectors, bool adjacent, bool partial>
void multiply_block(const Block& block) {
  const Floats d;
  // Plain arrays of vectors: std::array's constructor is not compiled for the instruction set, and g++ refuses to
  // inline vectors' constructors into it on ARM.
  Vector sums[rows][vectors];
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<vectors>([&](auto j) __attribute__((always_inline)) { sums[i][j] = hn::Zero(d); });
  });
  float* HWY_RESTRICT c = block.c;
  const std::int64_t c_row = block.c_row;
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<vectors>([&](auto j) __attribute__((always_inline)) { hwy::Prefetch(c + i * c_row + j * lanes); });
  });
  const float* HWY_RESTRICT a = block.a;
  const float* HWY_RESTRICT b = block.b;
  const std::int64_t a_row = adjacent ? 1 : block.a_row;
  const std::int64_t a_inner = block.a_inner;
  const std::int64_t b_inner = block.b_inner;
  const std::size_t last = block.last;
  for (std::int64_t k = block.inner; k > 0; --k, a += a_inner, b += b_inner) {
    Vector row[vectors];
    repeat<vectors>([&](auto j) __attribute__((always_inline)) {
      row[j] = partial && j == vectors - 1 ? load_first(b + j * lanes, last) : hn::LoadU(d, b + j * lanes);
    });
    repeat<rows>([&](auto i) __attribute__((always_inline)) {
      const Vector value = hn::Set(d, a[i * a_row]);
      repeat<vectors>([&](auto j)
                          __attribute__((always_inline)) { sums[i][j] = hn::MulAdd(value, row[j], sums[i][j]); });
    });
  }
  const Vector scale = hn::Set(d, block.scale);
  const bool accumulate = block.accumulate;
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<vectors>([&](auto j) __attribute__((always_inline)) {
      float* to = c + i * c_row + j * lanes;
      if (partial && j == vectors - 1) {
        const Vector before = accumulate ? load_first(to, last) : hn::Zero(d);
        store_first(hn::MulAdd(sums[i][j], scale, before), to, last);
      } else {
        const Vector before = accumulate ? hn::LoadU(d, to) : hn::Zero(d);
        hn::StoreU(hn::MulAdd(sums[i][j], scale, before), d, to);
      }
    });
  });
}

using BlockFunction = void (*)(const Block&);

template <bool adjacent, int vectors, bool partial>
BlockFunction block_function(std::int64_t rows) {
  static constexpr auto table = []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<BlockFunction, block_rows>{&multiply_block<i + 1, vectors, adjacent, partial>...};
  }
  (std::make_integer_sequence<int, block_rows>());
  return table[static_cast<std::size_t>(rows - 1)];
}

/// The block of rows x columns, at most block_rows x block_columns.
template <bool adjacent>
HWY_INLINE void multiply_block(Block& block, std::int64_t rows, std::int64_t columns) {
  if (columns == block_columns) return block_function<adjacent, block_vectors, false>(rows)(block);
  if (columns > lanes) {
    block.last = static_cast<std::size_t>(columns - lanes);
    return block_function<adjacent, block_vectors, true>(rows)(block);
  }
  block.last = static_cast<std::size_t>(columns);
  block_function<adjacent, 1, true>(rows)(block);
}

/// Four rows, `depth` long, to four columns, `width` apart.
template <int width>
HWY_INLINE void transpose_four(const float* from, std::int64_t stride, std::int64_t depth, float* to) {
  std::int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; k + 4 <= depth; k += 4) {
    const auto r0 = hn::LoadU(d, from + k);
    const auto r1 = hn::LoadU(d, from + stride + k);
    const auto r2 = hn::LoadU(d, from + 2 * stride + k);
    const auto r3 = hn::LoadU(d, from + 3 * stride + k);
    const auto low02 = hn::InterleaveLower(d, r0, r2);
    const auto low13 = hn::InterleaveLower(d, r1, r3);
    const auto high02 = hn::InterleaveUpper(d, r0, r2);
    const auto high13 = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to + k * width);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + (k + 1) * width);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + (k + 2) * width);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + (k + 3) * width);
  }
#endif
  for (; k < depth; ++k) {
    for (int i = 0; i < 4; ++i) to[k * width + i] = from[i * stride + k];
  }
}

/// to[k, i] = from[i * outer + k * inner] for i < count, zero from there to width.
template <int width>
void pack(const float* from, std::int64_t outer, std::int64_t inner, std::int64_t count, std::int64_t depth,
          float* to) {
  std::int64_t done = 0;
  if (inner == 1) {
    for (; done + 4 <= count; done += 4) transpose_four<width>(from + done * outer, outer, depth, to + done);
  }
  if (done == width) return;
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t i = done; i < count; ++i) to[k * width + i] = from[i * outer + k * inner];
    for (std::int64_t i = count; i < width; ++i) to[k * width + i] = 0;
  }
}

/// Packed strips and panels are padded by one cache line; otherwise all would start in the same cache set.
constexpr std::int64_t packed_stride(std::int64_t depth, std::int64_t width) { return depth * width + 16; }

/// Packs adjacent strips of rows of a, or panels of columns of b: [depth][width] each. begin(i) is where number i
/// begins in the outer dimension, which ends at `limit`.
template <int width, class Begin>
void pack(const float* from, std::int64_t outer, std::int64_t inner, const Begin& begin, std::int64_t first,
          std::int64_t end, std::int64_t limit, std::int64_t depth, float* to) {
  // Copies along the contiguous dimension, for memory bandwidth. A strip narrower than its slot gets values of the next
  // one, which are never read.
  const std::int64_t stride = packed_stride(depth, width);
  if (outer == 1) {
    const std::int64_t whole = limit - begin(end - 1) >= width ? end : end - 1;
    constexpr std::int64_t at_once = 16;
    while (first < whole) {
      const std::int64_t count = std::min(at_once, whole - first);
      std::array<const float*, at_once> sources;
      for (std::int64_t i = 0; i < count; ++i) sources[static_cast<std::size_t>(i)] = from + begin(first + i);
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::int64_t i = 0; i < count; ++i) {
          std::memcpy(to + i * stride + k * width, sources[static_cast<std::size_t>(i)] + k * inner,
                      width * sizeof(float));
        }
      }
      first += count;
      to += count * stride;
    }
  }
  for (std::int64_t i = first; i < end; ++i) {
    pack<width>(from + begin(i) * outer, outer, inner, std::min(begin(i + 1), limit) - begin(i), depth,
                to + (i - first) * stride);
  }
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
