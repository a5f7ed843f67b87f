// Products, transposes and exponentials of tiles that stay in the cache, for kernels that work tile by tile. Included
// once per target by files that use Highway's foreach_target.
#if defined(JERBOA_BACKEND_CPU_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_BACKEND_CPU_TILE_INL_H
#undef JERBOA_BACKEND_CPU_TILE_INL_H
#else
#define JERBOA_BACKEND_CPU_TILE_INL_H
#endif

#include <cstdint>
#include <cstring>
#include <hwy/highway.h>

#include "base/integers.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Widths of tiles are multiples of this, so that every target's vectors divide them.
constexpr std::int64_t granule = 16;
constexpr std::int64_t padded(std::int64_t width) { return detail::round_up(width, granule); }

using FloatTag = hn::CappedTag<float, granule>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;
constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

// A matrix whose rows are contiguous, except that the left operand of a product may be a transposed one.
struct Left {
  const float* data;
  std::int64_t row, inner;
};

template <int kRows, int kVectors>
HWY_INLINE void multiply_block(const Left& a, const float* HWY_RESTRICT b, std::int64_t b_row, float* HWY_RESTRICT c,
                               std::int64_t c_row, std::int64_t inner, bool accumulate) {
  const FloatTag d;
  Floats sum[kRows][kVectors];
  HWY_UNROLL(8) for (auto& row : sum) { HWY_UNROLL(4) for (Floats& element : row) element = hn::Zero(d); }
  const float* HWY_RESTRICT left = a.data;
  for (std::int64_t k = 0; k < inner; ++k) {
    Floats right[kVectors];
    HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const Floats factor = hn::Set(d, left[r * a.row]);
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, right[v], sum[r][v]);
    }
    left += a.inner;
    b += b_row;
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
      float* to = c + r * c_row + v * lanes;
      hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
    }
  }
}

template <int kVectors>
HWY_INLINE void multiply_columns(Left a, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
                                 std::int64_t rows, std::int64_t inner, bool accumulate) {
  constexpr int block = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
  for (; rows >= block; rows -= block, a.data += block * a.row, c += block * c_row)
    multiply_block<block, kVectors>(a, b, b_row, c, c_row, inner, accumulate);
  if constexpr (block > 4)
    if (rows >= 4) {
      multiply_block<4, kVectors>(a, b, b_row, c, c_row, inner, accumulate);
      rows -= 4, a.data += 4 * a.row, c += 4 * c_row;
    }
  for (; rows > 0; --rows, a.data += a.row, c += c_row)
    multiply_block<1, kVectors>(a, b, b_row, c, c_row, inner, accumulate);
}

// c[rows, columns] = a[rows, inner] b[inner, columns], or += with `accumulate`. Columns are a multiple of granule.
[[maybe_unused]] HWY_NOINLINE void multiply(const Left& a, const float* b, std::int64_t b_row, float* c,
                                            std::int64_t c_row, std::int64_t rows, std::int64_t columns,
                                            std::int64_t inner, bool accumulate) {
  std::int64_t column = 0;
  for (; column + 2 * lanes <= columns; column += 2 * lanes)
    multiply_columns<2>(a, b + column, b_row, c + column, c_row, rows, inner, accumulate);
  for (; column < columns; column += lanes)
    multiply_columns<1>(a, b + column, b_row, c + column, c_row, rows, inner, accumulate);
}

// to[j, i] = from[i, j] for i < rows, j < columns; the rows of `to` are zero-padded to a multiple of granule.
[[maybe_unused]] HWY_NOINLINE void transpose_tile(const float* from, std::int64_t from_row, std::int64_t rows,
                                                  std::int64_t columns, float* to, std::int64_t to_row) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d4;
  const hn::Repartition<double, decltype(d4)> d2;
  for (; i + 4 <= rows; i += 4) {
    const float* source = from + i * from_row;
    std::int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const auto r0 = hn::LoadU(d4, source + j), r1 = hn::LoadU(d4, source + from_row + j);
      const auto r2 = hn::LoadU(d4, source + 2 * from_row + j), r3 = hn::LoadU(d4, source + 3 * from_row + j);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
      float* target = to + j * to_row + i;
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, low01, low23)), d4, target);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, low01, low23)), d4, target + to_row);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, high01, high23)), d4, target + 2 * to_row);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, high01, high23)), d4, target + 3 * to_row);
    }
    for (; j < columns; ++j)
      for (std::int64_t e = 0; e < 4; ++e) to[j * to_row + i + e] = source[e * from_row + j];
  }
#endif
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
  if (const std::int64_t end = padded(rows); rows < end)
    for (std::int64_t j = 0; j < columns; ++j)
      std::memset(to + j * to_row + rows, 0, static_cast<std::size_t>(end - rows) * sizeof(float));
}

// to[0 … padded(width)) = from[0 … width) * scale, then zeros.
HWY_INLINE void copy_row(const float* from, std::int64_t width, float scale, float* to) {
  const FloatTag d;
  const Floats factor = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
  for (; i < width; ++i) to[i] = from[i] * scale;
  for (; i % granule != 0; ++i) to[i] = 0;
}

// The same without padding, for results.
HWY_INLINE void copy_result(const float* from, std::int64_t width, float scale, float* to) {
  const FloatTag d;
  const Floats factor = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
  for (; i < width; ++i) to[i] = from[i] * scale;
}

// e to the power x for x up to 88, within 2 ulp; exactly 0 below -87.3, also for minus infinity. NaN gives NaN.
HWY_INLINE Floats exponential(Floats x) {
  const FloatTag d;
  const IntTag di;
  const auto n = hn::NearestInt(hn::Mul(hn::Max(x, hn::Set(d, -88.0F)), hn::Set(d, 1.44269504F)));
  const Floats whole = hn::ConvertTo(d, n);
  const Floats r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4F), hn::NegMulAdd(whole, hn::Set(d, 0.693359375F), x));
  Floats p = hn::MulAdd(hn::Set(d, 1.9875691500e-4F), r, hn::Set(d, 1.3981999507e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const Floats power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3F)), hn::Mul(p, power));
}

}  // namespace
}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
