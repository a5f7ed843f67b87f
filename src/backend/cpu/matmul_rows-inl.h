// Products of a few rows, as in decoding: every value of b is read once and used at once, so packing does not help and
// they are memory-bound.

#if defined(JERBOA_CPU_MATMUL_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_MATMUL_ROWS_INL_H
#undef JERBOA_CPU_MATMUL_ROWS_INL_H
#else
#define JERBOA_CPU_MATMUL_ROWS_INL_H
#endif

#include "backend/cpu/compact_weights.h"
#include "backend/cpu/lane_sums-inl.h"
#include "backend/cpu/matmul_kernels-inl.h"
#include "backend/cpu/narrow_floats-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {

constexpr int few_rows = std::max(8, block_rows);
constexpr int dot_sums = 2 * block_rows;  // dot products at once: as many as a block of c has vectors
constexpr std::int64_t dot_depth = 512;
constexpr std::int64_t piece_groups = dot_depth / weight_group;

/// Some columns of a product of a few rows: c = a b.
struct RowsBlock {
  std::int64_t columns = 0, inner = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_inner = 0;
  const float* b = nullptr;
  std::int64_t b_inner = 0, b_column = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
};

/// c += a b over `depth` rows of b, which are contiguous, for the columns of `vectors` vectors.
template <int rows, int depth, int vectors, bool partial>
HWY_INLINE void add_rows_of_b(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t b_inner,
                              std::size_t last, float* HWY_RESTRICT c, std::int64_t c_row) {
  const Floats d;
  Vector sums[rows][vectors];
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<vectors>([&](auto j) __attribute__((always_inline)) { sums[i][j] = hn::Zero(d); });
  });
  repeat<depth>([&](auto k) __attribute__((always_inline)) {
    repeat<vectors>([&](auto j) __attribute__((always_inline)) {
      const float* from = b + k * b_inner + j * lanes;
      hwy::Prefetch(from + depth * b_inner);
      const Vector values = partial && j == vectors - 1 ? load_first(from, last) : hn::LoadU(d, from);
      repeat<rows>([&](auto i) __attribute__((always_inline)) {
        sums[i][j] = hn::MulAdd(hn::Set(d, a[i * depth + k]), values, sums[i][j]);
      });
    });
  });
  // The sum of a few terms is added to c, instead of each term: that rounds less.
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<vectors>([&](auto j) __attribute__((always_inline)) {
      float* to = c + i * c_row + j * lanes;
      if (partial && j == vectors - 1) {
        store_first(hn::Add(load_first(to, last), sums[i][j]), to, last);
      } else {
        hn::StoreU(hn::Add(hn::LoadU(d, to), sums[i][j]), d, to);
      }
    });
  });
}

template <int rows, int depth>
HWY_INLINE void add_rows_of_b(const RowsBlock& block, std::int64_t k) {
  std::array<float, static_cast<std::size_t>(rows * depth)> a;
  float* next = a.data();
  for (int i = 0; i < rows; ++i) {
    for (int n = 0; n < depth; ++n) *next++ = block.a[i * block.a_row + (k + n) * block.a_inner];
  }
  const float* b = block.b + k * block.b_inner;
  std::int64_t j = 0;
  for (; j + block_columns <= block.columns; j += block_columns) {
    add_rows_of_b<rows, depth, block_vectors, false>(a.data(), b + j, block.b_inner, 0, block.c + j, block.c_row);
  }
  for (; j < block.columns; j += lanes) {
    const auto last = static_cast<std::size_t>(std::min<std::int64_t>(lanes, block.columns - j));
    add_rows_of_b<rows, depth, 1, true>(a.data(), b + j, block.b_inner, last, block.c + j, block.c_row);
  }
}

/// For a b_column of 1: a few rows of b at a time, accumulated in c.
template <int rows>
void multiply_rows_along(const RowsBlock& block) {
  constexpr int depth = 4;
  for (int i = 0; i < rows; ++i) std::fill_n(block.c + i * block.c_row, block.columns, 0.0F);
  std::int64_t k = 0;
  for (; k + depth <= block.inner; k += depth) add_rows_of_b<rows, depth>(block, k);
  for (; k < block.inner; ++k) add_rows_of_b<rows, 1>(block, k);
}

/// Products of `rows` packed rows, dot_depth apart, with adjacent columns of b: stored in c, or added to it.
template <int rows, int columns>
HWY_INLINE void dot_products(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t b_column,
                             std::int64_t depth, bool accumulate, float* HWY_RESTRICT c, std::int64_t c_row) {
  const Floats d;
  Vector sums[rows][columns];
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<columns>([&](auto j) __attribute__((always_inline)) { sums[i][j] = hn::Zero(d); });
  });
  const auto step = [&](auto load) __attribute__((always_inline)) {
    Vector values[columns];
    repeat<columns>([&](auto j) __attribute__((always_inline)) {
      hwy::Prefetch(b + j * b_column + columns * b_column);
      values[j] = load(b + j * b_column);
    });
    repeat<rows>([&](auto i) __attribute__((always_inline)) {
      const Vector value = load(a + i * dot_depth);
      repeat<columns>([&](auto j)
                          __attribute__((always_inline)) { sums[i][j] = hn::MulAdd(value, values[j], sums[i][j]); });
    });
  };
  std::int64_t k = 0;
  for (; k + lanes <= depth; k += lanes, a += lanes, b += lanes) {
    step([&](const float* from) __attribute__((always_inline)) { return hn::LoadU(d, from); });
  }
  if (k < depth) {
    const auto last = static_cast<std::size_t>(depth - k);
    step([&](const float* from) __attribute__((always_inline)) { return load_first(from, last); });
  }
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<columns>([&](auto j) __attribute__((always_inline)) {
      float* to = c + i * c_row + j;
      *to = (accumulate ? *to : 0.0F) + hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
    });
  });
}

/// Calls multiply(a, begin, depth) for pieces of the rows, packed dot_depth apart, that stay in the L1 cache.
template <int rows, class Multiply>
HWY_INLINE void for_each_piece(const RowsBlock& block, const Multiply& multiply) {
  HWY_ALIGN float a[rows * dot_depth];
  std::int64_t begin = 0;
  do {
    const std::int64_t depth = std::min(dot_depth, block.inner - begin);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* from = block.a + i * block.a_row + begin * block.a_inner;
      for (std::int64_t k = 0; k < depth; ++k) a[i * dot_depth + k] = from[k * block.a_inner];
    }
    multiply(a, begin, depth);
    begin += depth;
  } while (begin < block.inner);
}

/// The number of columns for which a block of this many rows has accumulators.
template <int rows>
constexpr int columns_at_once = std::clamp(dot_sums / rows, 1, 8);

/// For a b_inner of 1: each value of c is a dot product.
template <int rows>
void multiply_rows_across(const RowsBlock& block) {
  constexpr int columns = columns_at_once<rows>;
  for_each_piece<rows>(
      block, [&](const float* a, std::int64_t begin, std::int64_t depth) __attribute__((always_inline)) {
        const float* b = block.b + begin;
        std::int64_t j = 0;
        for (; j + columns <= block.columns; j += columns)
          dot_products<rows, columns>(a, b + j * block.b_column, block.b_column, depth, begin > 0, block.c + j,
                                      block.c_row);
        for (; j < block.columns; ++j)
          dot_products<rows, 1>(a, b + j * block.b_column, block.b_column, depth, begin > 0, block.c + j, block.c_row);
      });
}

/// Dot products of one row with adjacent columns of weights, straight from their bits: c[j], or added to it.
template <int columns, class Step>
HWY_INLINE void sum_of_steps(bool accumulate, float* HWY_RESTRICT c, const Step& steps) {
  const Floats d;
  Vector sums[columns];
  repeat<columns>([&](auto j) __attribute__((always_inline)) { sums[j] = hn::Zero(d); });
  steps(sums);
  repeat<columns>([&](auto j) __attribute__((always_inline)) {
    float* to = c + j;
    *to = (accumulate ? *to : 0.0F) + hn::GetLane(hn::SumOfLanes(d, sums[j]));
  });
}

/// One row times a column of 16-bit weights, in whole vectors. Columns are processed one after the other: weights are
/// then read in storage order, for which the hardware prefetches best; software prefetching costs more than it saves,
/// measured on an EPYC.
template <bool brain>
HWY_INLINE Vector dot_halves(const float* HWY_RESTRICT a, const std::uint16_t* from, std::int64_t depth) {
  const Floats d;
  constexpr int chains = 4;  // independent sums
  Vector sums[chains];
  repeat<chains>([&](auto i) __attribute__((always_inline)) { sums[i] = hn::Zero(d); });
  const auto step = [&](std::int64_t k, auto i) __attribute__((always_inline)) {
    sums[i] = hn::MulAdd(hn::LoadU(d, a + k), brain ? load_bf16(from + k) : load_f16(from + k), sums[i]);
  };
  constexpr std::int64_t at_once = std::int64_t{chains} * lanes;
  std::int64_t k = 0;
  for (; k + at_once <= depth; k += at_once)
    repeat<chains>([&](auto i) __attribute__((always_inline)) { step(k + std::int64_t{i} * lanes, i); });
  for (; k < depth; k += lanes) step(k, std::integral_constant<int, 0>());
  return hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
}

/// One row times some columns of 16-bit weights.
template <bool brain>
void multiply_row_of_halves(const float* a, const CompactWeights& weights, std::int64_t first_column,
                            std::int64_t columns, std::int64_t depth, float* c) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(weights.values) + first_column * weights.row;
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> four;
  for (; j + 4 <= columns; j += 4, from += 4 * weights.row) {
    const Vector first = dot_halves<brain>(a, from, depth), second = dot_halves<brain>(a, from + weights.row, depth);
    const Vector third = dot_halves<brain>(a, from + 2 * weights.row, depth);
    const Vector fourth = dot_halves<brain>(a, from + 3 * weights.row, depth);
    hn::StoreU(sums_of_lanes(Floats(), first, second, third, fourth), four, c + j);
  }
#endif
  for (; j < columns; ++j, from += weights.row)
    c[j] = hn::GetLane(hn::SumOfLanes(Floats(), dot_halves<brain>(a, from, depth)));
}

/// For int8: the integers are multiplied first, and the sum of each group by its scale.
template <int columns>
HWY_INLINE void dot_bytes(const float* HWY_RESTRICT a, const std::int8_t* b, std::int64_t b_row, const float* scales,
                          std::int64_t depth, bool accumulate, float* HWY_RESTRICT c) {
  const Floats d;
  const hn::RebindToSigned<Floats> wide;
  const hn::Rebind<std::int8_t, Floats> narrow;
  sum_of_steps<columns>(
      accumulate, c, [&](auto& sums) __attribute__((always_inline)) {
        for (std::int64_t group = 0; group * weight_group < depth; ++group)
          repeat<columns>([&](auto j) __attribute__((always_inline)) {
            const std::int8_t* from = b + j * b_row + group * weight_group;
            hwy::Prefetch(from + columns * b_row);
            Vector part = hn::Zero(d);
            for (std::int64_t k = 0; k < weight_group; k += lanes)
              part = hn::MulAdd(hn::LoadU(d, a + group * weight_group + k),
                                hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, from + k))), part);
            sums[j] = hn::MulAdd(part, hn::Set(d, scales[j * piece_groups + group]), sums[j]);
          });
      });
}

template <int columns>
HWY_INLINE void dot_nibbles(const float* HWY_RESTRICT a, const std::uint8_t* b, std::int64_t b_row, const float* scales,
                            std::int64_t depth, bool accumulate, float* HWY_RESTRICT c) {
  const Floats d;
  const hn::RebindToSigned<Floats> wide;
  const hn::Rebind<std::uint8_t, Floats> narrow;
  constexpr std::int64_t half = weight_group / 2;
  sum_of_steps<columns>(
      accumulate, c, [&](auto& sums) __attribute__((always_inline)) {
        const auto eight = hn::Set(wide, 8), fifteen = hn::Set(wide, 15);
        for (std::int64_t group = 0; group * weight_group < depth; ++group)
          repeat<columns>([&](auto j) __attribute__((always_inline)) {
            const std::uint8_t* from = b + j * b_row + group * half;
            hwy::Prefetch(from + columns * b_row);
            const float* values = a + group * weight_group;
            Vector part = hn::Zero(d);
            for (std::int64_t k = 0; k < half; k += lanes) {
              const auto both = hn::PromoteTo(wide, hn::LoadU(narrow, from + k));
              const auto low = hn::Sub(hn::And(both, fifteen), eight), high = hn::Sub(hn::ShiftRight<4>(both), eight);
              part = hn::MulAdd(hn::LoadU(d, values + k), hn::ConvertTo(d, low), part);
              part = hn::MulAdd(hn::LoadU(d, values + half + k), hn::ConvertTo(d, high), part);
            }
            sums[j] = hn::MulAdd(part, hn::Set(d, scales[j * piece_groups + group]), sums[j]);
          });
      });
}

/// The sums of a row's values for each group of weights, for a piece of the row; 0 past its end.
inline std::array<float, static_cast<std::size_t>(piece_groups)> sums_of_groups(const float* a, std::int64_t depth) {
  const Floats d;
  std::array<float, static_cast<std::size_t>(piece_groups)> sums{};
  for (std::int64_t group = 0; group * weight_group < depth; ++group) {
    Vector sum = hn::Zero(d);
    for (std::int64_t k = 0; k < weight_group; k += lanes)
      sum = hn::Add(sum, hn::LoadU(d, a + group * weight_group + k));
    sums[static_cast<std::size_t>(group)] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  return sums;
}

/// Adds the minimums of some columns of weights, each times the sum of the corresponding values.
template <int columns>
void add_mins(const CompactWeights& weights, std::int64_t column, std::int64_t begin, std::int64_t depth,
              const float* group_sums, float* c) {
  for (std::int64_t j = 0; j < columns; ++j) {
    std::array<float, static_cast<std::size_t>(piece_groups)> mins;
    expand_mins(weights, column + j, begin, depth, mins.data());
    float sum = 0;
    for (std::int64_t group = 0; group < depth / weight_group; ++group)
      sum += mins[static_cast<std::size_t>(group)] * group_sums[group];
    c[j] += sum;
  }
}

/// One row times some columns of int8 or int4 weights, `depth` values starting at `begin`, in whole vectors and groups.
template <int columns>
void dot_weights(const float* a, const CompactWeights& weights, std::int64_t column, std::int64_t begin,
                 std::int64_t depth, float* c) {
  const bool accumulate = begin > 0;
  const std::int64_t place = column * weights.row + begin;
  std::array<float, static_cast<std::size_t>(columns * piece_groups)> scales;
  for (std::int64_t j = 0; j < columns; ++j)
    expand_scales(weights, column + j, begin, depth, scales.data() + j * piece_groups);
  if (weights.dtype == DType::i8)
    return dot_bytes<columns>(a, reinterpret_cast<const std::int8_t*>(weights.values) + place, weights.row,
                              scales.data(), depth, accumulate, c);
  dot_nibbles<columns>(a, reinterpret_cast<const std::uint8_t*>(weights.values) + place / 2, weights.row / 2,
                       scales.data(), depth, accumulate, c);
}

/// The same for weights whose columns are expanded, some at a time, into `values`, 8 × dot_depth, which stay in the L1
/// cache.
template <int rows>
void multiply_expanded_rows(const RowsBlock& block, const CompactWeights& weights, std::int64_t first_column,
                            float* values) {
  constexpr int columns = columns_at_once<rows>;
  for_each_piece<rows>(
      block, [&](const float* a, std::int64_t begin, std::int64_t depth) __attribute__((always_inline)) {
        std::int64_t j = 0;
        if (rows == 1 && weights.scales != nullptr) {
          const auto group_sums = weights.mins != nullptr ? sums_of_groups(a, depth) : decltype(sums_of_groups(a, 0))();
          for (; j + columns <= block.columns; j += columns) {
            dot_weights<columns>(a, weights, first_column + j, begin, depth, block.c + j);
            if (weights.mins != nullptr)
              add_mins<columns>(weights, first_column + j, begin, depth, group_sums.data(), block.c + j);
          }
        }
        const auto expand = [&](std::int64_t first, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i)
            expand_weights(weights, first_column + first + i, begin, depth, values + i * dot_depth);
        };
        for (; j + columns <= block.columns; j += columns) {
          expand(j, columns);
          dot_products<rows, columns>(a, values, dot_depth, depth, begin > 0, block.c + j, block.c_row);
        }
        for (; j < block.columns; ++j) {
          expand(j, 1);
          dot_products<rows, 1>(a, values, dot_depth, depth, begin > 0, block.c + j, block.c_row);
        }
      });
}

using ExpandedRowsFunction = void (*)(const RowsBlock&, const CompactWeights&, std::int64_t, float*);

inline ExpandedRowsFunction expanded_rows_function(std::int64_t rows) {
  static constexpr auto table = []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<ExpandedRowsFunction, few_rows>{&multiply_expanded_rows<i + 1>...};
  }
  (std::make_integer_sequence<int, few_rows>());
  return table[static_cast<std::size_t>(rows - 1)];
}

using RowsFunction = void (*)(const RowsBlock&);

inline RowsFunction rows_function(std::int64_t rows, bool along) {
  static constexpr auto tables = []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<std::array<RowsFunction, few_rows>, 2>{
        {{&multiply_rows_across<i + 1>...}, {&multiply_rows_along<i + 1>...}}};
  }
  (std::make_integer_sequence<int, few_rows>());
  return tables[along ? 1 : 0][static_cast<std::size_t>(rows - 1)];
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
