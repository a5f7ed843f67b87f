// Products of a few rows with int8 or int4 weights in integers: each group of 32 values of a row is rounded to 8 bits
// times a scale, like its weights. That takes a third of the instructions of products in f32. The byte products of x86
// are in matmul_bytes-inl.h.

#if defined(JERBOA_CPU_MATMUL_INTEGERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_MATMUL_INTEGERS_INL_H
#undef JERBOA_CPU_MATMUL_INTEGERS_INL_H
#else
#define JERBOA_CPU_MATMUL_INTEGERS_INL_H
#endif

#include <limits>

#include "backend/cpu/matmul_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using Shorts = hn::ScalableTag<std::int16_t>;
using Integers = hn::RebindToSigned<Floats>;
constexpr std::int64_t short_lanes = static_cast<std::int64_t>(hn::MaxLanes(Shorts()));
static_assert(weight_group % short_lanes == 0);
constexpr int group_vectors = static_cast<int>(weight_group / short_lanes);

/// A piece of some rows in integers.
template <int rows>
struct IntegerPiece {
  HWY_ALIGN std::int16_t values[rows * dot_depth];
  HWY_ALIGN float scales[rows * piece_groups] = {};
  HWY_ALIGN float sums[rows * piece_groups];  ///< of the values before rounding, per group
  HWY_ALIGN float rounded_sums[rows * piece_groups] = {};
};

struct RoundedGroup {
  float scale, sum;  ///< of the integers, times the scale
};

/// Rounds a group. NaN and infinity make the scale NaN, and with it all results that use the group.
inline RoundedGroup round_group(const float* from, std::int16_t* to) {
  const Floats d;
  Vector most = hn::Zero(d);
  auto finite = hn::Eq(most, most);
  for (std::int64_t k = 0; k < weight_group; k += lanes) {
    const Vector size = hn::Abs(hn::LoadU(d, from + k));
    finite = hn::And(finite, hn::Lt(size, hn::Set(d, std::numeric_limits<float>::infinity())));
    most = hn::Max(most, size);
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  if (!hn::AllTrue(d, finite)) {
    std::fill_n(to, weight_group, std::int16_t{0});
    return {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::quiet_NaN()};
  }
  const Vector factor = hn::Set(d, largest > 0 ? 127 / largest : 0);
  const hn::Rebind<std::int16_t, Floats> narrow;
  auto sum = hn::Zero(Integers());
  for (std::int64_t k = 0; k < weight_group; k += lanes) {
    const auto integers = hn::NearestInt(hn::Mul(hn::LoadU(d, from + k), factor));
    sum = hn::Add(sum, integers);
    hn::StoreU(hn::DemoteTo(narrow, integers), narrow, to + k);
  }
  const float scale = largest / 127;
  return {scale, scale * static_cast<float>(hn::GetLane(hn::SumOfLanes(Integers(), sum)))};
}

template <int rows>
void round_piece(const float* a, std::int64_t depth, IntegerPiece<rows>& piece) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto sums = sums_of_groups(a + i * dot_depth, depth);
    std::copy(sums.begin(), sums.end(), piece.sums + i * piece_groups);
    for (std::int64_t group = 0; group < depth / weight_group; ++group) {
      const std::int64_t at = i * dot_depth + group * weight_group;
      const RoundedGroup rounded = round_group(a + at, piece.values + at);
      piece.scales[i * piece_groups + group] = rounded.scale;
      piece.rounded_sums[i * piece_groups + group] = rounded.sum;
    }
  }
}

/// One column of weights, a group at a time, as 16-bit integers.
struct ColumnOfBytes {
  const std::int8_t* weights;

  HWY_INLINE void load(std::int64_t group, hn::Vec<Shorts>* to) const {
    const Shorts d;
    const hn::Rebind<std::int8_t, Shorts> narrow;
    const std::int8_t* from = weights + group * weight_group;
    repeat<group_vectors>([&](auto v) __attribute__((always_inline)) {
      to[v] = hn::PromoteTo(d, hn::LoadU(narrow, from + v * short_lanes));
    });
  }
};

/// Weights from 0 to 15, which are 8 too large; the minimums compensate.
struct ColumnOfNibbles {
  const std::uint8_t* weights;

  // The low nibbles of 16 bytes are the first 16 weights, the high nibbles the others.
  template <class D = Shorts>
  HWY_INLINE void load(std::int64_t group, hn::Vec<D>* to) const {
    const D d;
    const hn::Rebind<std::uint8_t, D> narrow;
    const std::uint8_t* from = weights + group * (weight_group / 2);
    if constexpr (hn::MaxLanes(d) == weight_group) {
      const hn::Half<decltype(narrow)> half;
      const auto both = hn::LoadU(half, from);
      to[0] = hn::PromoteTo(d, hn::Combine(narrow, hn::ShiftRight<4>(both), hn::And(both, hn::Set(half, 15))));
    } else {
      repeat<group_vectors / 2>([&](auto v) __attribute__((always_inline)) {
        const auto both = hn::PromoteTo(d, hn::LoadU(narrow, from + v * short_lanes));
        to[v] = hn::And(both, hn::Set(d, 15));
        to[v + group_vectors / 2] = hn::ShiftRight<4>(both);
      });
    }
  }
};

/// The scales or minimums of a column's groups; 0 past the end of the piece.
inline void load_per_group(const CompactWeights& weights, const std::byte* from, std::int64_t column,
                           std::int64_t begin, std::int64_t depth, float* to) {
  const std::int64_t place = (column * weights.row + begin) / weight_group;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from) + place;
  if (depth == dot_depth && weights.scale_dtype == DType::f16) {
    for (std::int64_t i = 0; i < piece_groups; i += lanes) hn::Store(load_f16(halves + i), Floats(), to + i);
    return;
  }
  std::fill_n(to, piece_groups, 0.0F);
  if (from == weights.scales)
    expand_scales(weights, column, begin, depth, to);
  else
    expand_mins(weights, column, begin, depth, to);
}
static_assert(piece_groups % lanes == 0);

/// Products of a piece with one column of weights: a vector per row, whose lanes add up to the result. Weights are read
/// in storage order, for which memory is fastest.
template <int rows, class Column>
HWY_INLINE void dot_integers(const IntegerPiece<rows>& piece, const Column& column, const float* scales,
                             std::int64_t depth, Vector* results) {
  const Floats d;
  const Shorts shorts;
  const Integers integers;
  constexpr int chains = rows == 1 ? 2 : 1;  // independent sums
  Vector sums[rows][chains];
  HWY_ALIGN float factors[rows * piece_groups];
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    for (std::int64_t group = 0; group < piece_groups; group += lanes)
      hn::Store(hn::Mul(hn::Load(d, scales + group), hn::Load(d, piece.scales + i * piece_groups + group)), d,
                factors + i * piece_groups + group);
    repeat<chains>([&](auto chain) __attribute__((always_inline)) { sums[i][chain] = hn::Zero(d); });
  });
  const auto step = [&](std::int64_t group, auto chain) __attribute__((always_inline)) {
    hn::Vec<Shorts> weights[group_vectors];
    column.load(group, weights);
    repeat<rows>([&](auto i) __attribute__((always_inline)) {
      auto first = hn::Zero(integers), second = hn::Zero(integers);
      const std::int16_t* values = piece.values + i * dot_depth + group * weight_group;
      repeat<group_vectors>([&](auto v) __attribute__((always_inline)) {
        first = hn::ReorderWidenMulAccumulate(integers, weights[v], hn::Load(shorts, values + v * short_lanes), first,
                                              second);
      });
      sums[i][chain] = hn::MulAdd(hn::ConvertTo(d, hn::Add(first, second)),
                                  hn::Set(d, factors[i * piece_groups + group]), sums[i][chain]);
    });
  };
  const std::int64_t groups = depth / weight_group;
  std::int64_t group = 0;
  for (; group + chains <= groups; group += chains)
    repeat<chains>([&](auto chain) __attribute__((always_inline)) { step(group + chain, chain); });
  for (; group < groups; ++group) step(group, std::integral_constant<int, 0>());
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    results[i] = sums[i][0];
    if constexpr (chains == 2) results[i] = hn::Add(sums[i][0], sums[i][1]);
  });
}

/// Adds the terms that do not depend on single weights: a column's minimums, each times the sum of the corresponding
/// values, and for int4 the offset of 8.
template <int rows>
HWY_INLINE void add_offsets(const IntegerPiece<rows>& piece, const float* mins, const float* scales, Vector* results) {
  const Floats d;
  for (std::int64_t group = 0; group < piece_groups; group += lanes)
    repeat<rows>([&](auto i) __attribute__((always_inline)) {
      const std::int64_t at = i * piece_groups + group;
      if (mins != nullptr) results[i] = hn::MulAdd(hn::Load(d, mins + group), hn::Load(d, piece.sums + at), results[i]);
      if (scales != nullptr)
        results[i] = hn::MulAdd(hn::Mul(hn::Load(d, scales + group), hn::Set(d, -8.0F)),
                                hn::Load(d, piece.rounded_sums + at), results[i]);
    });
}

/// Products of a piece with one column.
template <int rows>
HWY_INLINE void multiply_column(const IntegerPiece<rows>& piece, const CompactWeights& weights, std::int64_t column,
                                std::int64_t begin, std::int64_t depth, Vector* results) {
  HWY_ALIGN float scales[piece_groups];
  HWY_ALIGN float mins[piece_groups];
  const std::int64_t place = column * weights.row + begin;
  load_per_group(weights, weights.scales, column, begin, depth, scales);
  if (weights.dtype == DType::i8) {
    dot_integers<rows>(piece, ColumnOfBytes{reinterpret_cast<const std::int8_t*>(weights.values) + place}, scales,
                       depth, results);
  } else {
    const auto* nibbles = reinterpret_cast<const std::uint8_t*>(weights.values) + place / 2;
    dot_integers<rows>(piece, ColumnOfNibbles{nibbles}, scales, depth, results);
  }
  if (weights.mins != nullptr) load_per_group(weights, weights.mins, column, begin, depth, mins);
  if (weights.mins != nullptr || weights.dtype == DType::i4)
    add_offsets<rows>(piece, weights.mins != nullptr ? mins : nullptr, weights.dtype == DType::i4 ? scales : nullptr,
                      results);
}

/// Some columns of a product of a few rows with int8 or int4 weights.
template <int rows>
void multiply_integer_rows(const RowsBlock& block, const CompactWeights& weights, std::int64_t first_column) {
  for_each_piece<rows>(block, [&](const float* a, std::int64_t begin, std::int64_t depth) {
    IntegerPiece<rows> piece;
    round_piece<rows>(a, depth, piece);
    const hn::Full128<float> four;
    Vector results[4][rows];
    std::int64_t j = 0;
    for (; j + 4 <= block.columns; j += 4) {
      for (std::int64_t k = 0; k < 4; ++k)
        multiply_column<rows>(piece, weights, first_column + j + k, begin, depth, results[k]);
      repeat<rows>([&](auto i) __attribute__((always_inline)) {
        float* to = block.c + i * block.c_row + j;
        const auto sums = sums_of_lanes(Floats(), results[0][i], results[1][i], results[2][i], results[3][i]);
        hn::StoreU(begin > 0 ? hn::Add(hn::LoadU(four, to), sums) : sums, four, to);
      });
    }
    for (; j < block.columns; ++j) {
      multiply_column<rows>(piece, weights, first_column + j, begin, depth, results[0]);
      for (std::int64_t i = 0; i < rows; ++i) {
        float* to = block.c + i * block.c_row + j;
        *to = (begin > 0 ? *to : 0.0F) + hn::GetLane(hn::SumOfLanes(Floats(), results[0][i]));
      }
    }
  });
}

using IntegerRowsFunction = void (*)(const RowsBlock&, const CompactWeights&, std::int64_t);

inline IntegerRowsFunction integer_rows_function(std::int64_t rows) {
  static constexpr auto table = []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<IntegerRowsFunction, few_rows>{&multiply_integer_rows<i + 1>...};
  }
  (std::make_integer_sequence<int, few_rows>());
  return table[static_cast<std::size_t>(rows - 1)];
}
#endif

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
