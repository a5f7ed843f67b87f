// Products of a few rows with int8 or int4 weights, multiplied as bytes by 256-bit x86 instructions that Highway lacks.
// Included once for AVX2 (maddubs) and once for VNNI (dpbusd), in separate namespaces; JERBOA_VNNI selects. 512-bit
// vectors would not be faster: one row is memory-bound, and some CPUs split them in two.

#include "backend/cpu/repeat-inl.h"

/// The sums of products of four adjacent bytes each, for a group of int8 weights, plus `start`.
HWY_INLINE __m256i dot_group(__m256i weights, const std::int8_t* values, const std::int32_t* start) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
#if JERBOA_VNNI
  // One operand is unsigned: 128 is added to the weights, for which `start` compensates.
  const __m256i shifted = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
  return _mm256_dpbusd_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(start)), shifted, a);
#else
  (void)start;
  const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(a, weights));
  return _mm256_madd_epi16(products, _mm256_set1_epi16(1));
#endif
}

/// The same of two groups of int4 weights, from 0 to 15: four sums of the first, then four of the second.
HWY_INLINE __m256i dot_pair(__m256i low, __m256i high, const std::int8_t* values) {
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
  const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 32));
#if JERBOA_VNNI
  return _mm256_dpbusd_epi32(_mm256_dpbusd_epi32(_mm256_setzero_si256(), low, first), high, second);
#else
  const __m256i products = _mm256_add_epi16(_mm256_maddubs_epi16(low, first), _mm256_maddubs_epi16(high, second));
  return _mm256_madd_epi16(products, _mm256_set1_epi16(1));
#endif
}

/// Scales or minimums of up to 8 groups, 0 past their end.
HWY_INLINE __m256 load_per_group(const std::uint16_t* from, std::int64_t groups) {
  if (groups >= 8) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  alignas(16) std::uint16_t some[8] = {};
  for (std::int64_t i = 0; i < groups; ++i) some[i] = from[i];
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(some)));
}
HWY_INLINE __m256 load_per_group(const float* from, std::int64_t groups) {
  if (groups >= 8) return _mm256_loadu_ps(from);
  alignas(32) float some[8] = {};
  for (std::int64_t i = 0; i < groups; ++i) some[i] = from[i];
  return _mm256_load_ps(some);
}

/// A column of weights.
struct Column {
  const std::uint8_t* values;
  const std::uint16_t* scales;
  const std::uint16_t* mins;  ///< null: none
};

/// The results of a column: vectors whose lanes add up to the product with each row. One row has two sums, so that
/// their additions are independent.
template <int rows>
constexpr int chains = rows == 1 ? 2 : 1;
template <int rows>
using Sums = __m256[rows][chains<rows>];

/// The weights' scales times the rows' scales, for eight groups.
template <int rows>
struct alignas(32) Factors {
  float of[rows][8];
};

/// Adds terms times the sums of the row's values, for each of up to 8 groups.
template <int rows>
HWY_INLINE void add_per_group(const float* row_sums, std::int64_t row_stride, __m256 terms, std::int64_t groups,
                              Sums<rows>& sums) {
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    sums[i][0] = _mm256_fmadd_ps(terms, load_per_group(row_sums + i * row_stride, groups), sums[i][0]);
  });
}

template <int rows, int number>
HWY_INLINE void add_group_of_bytes(const RoundedRows& a, const Column& column, std::int64_t group,
                                   const Factors<rows>& factors, Sums<rows>& sums) {
  const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column.values + group * 32));
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    const std::int64_t at = i * a.groups + group;
    const __m256 dots = _mm256_cvtepi32_ps(dot_group(weights, a.values + at * 32, a.starts + at * 8));
    __m256& sum = sums[i][number % chains<rows>];
    sum = _mm256_fmadd_ps(dots, _mm256_broadcast_ss(&factors.of[i][number]), sum);
  });
}

template <int rows, int number>
HWY_INLINE void add_pair_of_nibbles(const RoundedRows& a, const Column& column, std::int64_t group,
                                    const Factors<rows>& factors, Sums<rows>& sums) {
  const __m256i fifteen = _mm256_set1_epi8(15);
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column.values + group * 16));
  const __m256i low = _mm256_and_si256(both, fifteen), high = _mm256_and_si256(_mm256_srli_epi16(both, 4), fifteen);
  const __m256i first_then_second = _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0);
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    const __m256 dots = _mm256_cvtepi32_ps(dot_pair(low, high, a.values + (i * a.groups + group) * 32));
    const __m256d two = _mm256_broadcast_sd(reinterpret_cast<const double*>(&factors.of[i][number]));
    __m256& sum = sums[i][number / 2 % chains<rows>];
    sum = _mm256_fmadd_ps(dots, _mm256_permutevar_ps(_mm256_castpd_ps(two), first_then_second), sum);
  });
}

/// The last group of int4 weights if their number is odd.
template <int rows, int number>
HWY_INLINE void add_group_of_nibbles(const RoundedRows& a, const Column& column, std::int64_t group,
                                     const Factors<rows>& factors, Sums<rows>& sums) {
  const __m128i fifteen = _mm_set1_epi8(15);
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(column.values + group * 16));
  const __m128i low = _mm_and_si128(both, fifteen), high = _mm_and_si128(_mm_srli_epi16(both, 4), fifteen);
  const __m256i weights = _mm256_setr_m128i(low, high);
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    const auto* values = reinterpret_cast<const __m256i*>(a.values + (i * a.groups + group) * 32);
    const __m256i products = _mm256_maddubs_epi16(weights, _mm256_loadu_si256(values));
    const __m256 dots = _mm256_cvtepi32_ps(_mm256_madd_epi16(products, _mm256_set1_epi16(1)));
    sums[i][0] = _mm256_fmadd_ps(dots, _mm256_broadcast_ss(&factors.of[i][number]), sums[i][0]);
  });
}

/// Prefetches weights that are read some columns later into the L2 cache: int4 weights come from three streams, more
/// than the hardware prefetches well (a fifth faster on an EPYC; int8 weights, with two, are not). An address need not
/// be valid.
HWY_INLINE void prefetch_nibbles(const Column& column, std::int64_t group) {
  constexpr std::int64_t groups_ahead = 512;
  const std::uint8_t* values = column.values + (group + groups_ahead) * 16;
  __builtin_prefetch(values, 0, 2);
  __builtin_prefetch(values + 64, 0, 2);
  __builtin_prefetch(column.scales + group + groups_ahead, 0, 2);
  if (column.mins != nullptr) __builtin_prefetch(column.mins + group + groups_ahead, 0, 2);
}

/// Adds up to eight groups, all of them if `whole`.
template <int rows, bool nibbles, bool whole>
HWY_INLINE void add_groups(const RoundedRows& a, const Column& column, std::int64_t group, Sums<rows>& sums) {
  const std::int64_t groups = whole ? 8 : a.groups - group;
  const __m256 scales = load_per_group(column.scales + group, groups);
  Factors<rows> factors;
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    const __m256 row_scales = load_per_group(a.scales + i * a.groups + group, groups);
    _mm256_store_ps(factors.of[i], _mm256_mul_ps(scales, row_scales));
  });
  if (column.mins != nullptr)
    add_per_group<rows>(a.sums + group, a.groups, load_per_group(column.mins + group, groups), groups, sums);
  if constexpr (nibbles) {
    if (whole) prefetch_nibbles(column, group);
    // Stored nibbles are 8 too large.
    add_per_group<rows>(a.rounded_sums + group, a.groups, _mm256_mul_ps(scales, _mm256_set1_ps(-8)), groups, sums);
    repeat<4>([&](auto pair) __attribute__((always_inline)) {
      constexpr int number = 2 * pair;
      if (whole || number + 2 <= groups)
        add_pair_of_nibbles<rows, number>(a, column, group + number, factors, sums);
      else if (number < groups)
        add_group_of_nibbles<rows, number>(a, column, group + number, factors, sums);
    });
  } else {
    repeat<8>([&](auto number) __attribute__((always_inline)) {
      if (whole || number < groups) add_group_of_bytes<rows, number>(a, column, group + number, factors, sums);
    });
  }
}

template <int rows, bool nibbles>
HWY_INLINE void multiply_column(const RoundedRows& a, const Column& column, __m256* totals) {
  Sums<rows> sums;
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    repeat<chains<rows>>([&](auto chain) __attribute__((always_inline)) { sums[i][chain] = _mm256_setzero_ps(); });
  });
  std::int64_t group = 0;
  for (; group + 8 <= a.groups; group += 8) add_groups<rows, nibbles, true>(a, column, group, sums);
  if (group < a.groups) add_groups<rows, nibbles, false>(a, column, group, sums);
  repeat<rows>([&](auto i) __attribute__((always_inline)) {
    totals[i] = chains<rows> == 2 ? _mm256_add_ps(sums[i][0], sums[i][chains<rows> - 1]) : sums[i][0];
  });
}

/// The sums of the lanes of four vectors.
HWY_INLINE __m128 sums_of_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

/// Some columns of a product: c[i, j], with rows c_row apart.
template <int rows, bool nibbles>
void multiply_columns(const RoundedRows& a, const CompactWeights& weights, std::int64_t first, std::int64_t columns,
                      float* c, std::int64_t c_row) {
  const auto column = [&](std::int64_t number) {
    const std::int64_t group = (first + number) * a.groups;
    const auto* mins = reinterpret_cast<const std::uint16_t*>(weights.mins);
    return Column{reinterpret_cast<const std::uint8_t*>(weights.values) + group * (nibbles ? 16 : 32),
                  reinterpret_cast<const std::uint16_t*>(weights.scales) + group,
                  mins == nullptr ? nullptr : mins + group};
  };
  __m256 totals[4][rows];
  for (std::int64_t j = 0; j < columns; j += 4) {
    const int some = static_cast<int>(columns - j < 4 ? columns - j : 4);
    for (int k = 0; k < some; ++k) multiply_column<rows, nibbles>(a, column(j + k), totals[k]);
    for (int k = some; k < 4; ++k)
      for (int i = 0; i < rows; ++i) totals[k][i] = _mm256_setzero_ps();
    for (int i = 0; i < rows; ++i) {
      alignas(16) float results[4];
      _mm_store_ps(results, sums_of_lanes(totals[0][i], totals[1][i], totals[2][i], totals[3][i]));
      for (int k = 0; k < some; ++k) c[i * c_row + j + k] = results[k];
    }
  }
}

/// Converts four vectors of integers to bytes, in order: packing works on halves of vectors.
HWY_INLINE __m256i to_bytes(const __m256i* integers) {
  return _mm256_permutevar8x32_epi32(
      _mm256_packs_epi16(_mm256_packs_epi32(integers[0], integers[1]), _mm256_packs_epi32(integers[2], integers[3])),
      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

HWY_INLINE float largest_lane(__m256 v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ps(four, _mm_movehdup_ps(four)));
}
HWY_INLINE float sum_of_lanes(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ps(four, _mm_movehdup_ps(four)));
}

struct RoundedGroup {
  __m256i values, sums_of_four;
  float scale, sum;  ///< sum: before rounding
};

HWY_INLINE RoundedGroup round_group(const float* from) {
  __m256 values[4], most = _mm256_setzero_ps(), total = _mm256_setzero_ps();
  const __m256 sign = _mm256_set1_ps(-0.0F), infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  __m256 finite = _mm256_cmp_ps(most, most, _CMP_EQ_OQ);
  for (int i = 0; i < 4; ++i) {
    values[i] = _mm256_loadu_ps(from + std::ptrdiff_t{8} * i);
    const __m256 size = _mm256_andnot_ps(sign, values[i]);
    finite = _mm256_and_ps(finite, _mm256_cmp_ps(size, infinity, _CMP_LT_OQ));
    most = _mm256_max_ps(most, size);
    total = _mm256_add_ps(total, values[i]);
  }
  const float largest = largest_lane(most);
  const bool is_finite = _mm256_movemask_ps(finite) == 0xFF;
  const __m256 factor = _mm256_set1_ps(largest > 0 ? 127 / largest : 0);
  __m256i integers[4];
  for (int i = 0; i < 4; ++i)
    integers[i] = is_finite ? _mm256_cvtps_epi32(_mm256_mul_ps(values[i], factor)) : _mm256_setzero_si256();
  RoundedGroup result;
  result.values = to_bytes(integers);
  result.sums_of_four =
      _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), result.values), _mm256_set1_epi16(1));
  result.scale = is_finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
  result.sum = sum_of_lanes(total);
  return result;
}

/// Rounds one of the rows.
void round_row(const float* from, std::int64_t row, const RoundedRows& to) {
  using Layout = RoundedRows::Layout;
  for (std::int64_t group = 0; group < to.groups; ++group) {
    const std::int64_t at = row * to.groups + group;
    const RoundedGroup rounded = round_group(from + group * 32);
    std::int8_t* low = to.values + at * 32;
    std::int8_t* high = low + 16;
    if (to.layout == Layout::nibbles && (group ^ 1) < to.groups) {
      low = to.values + (at - group % 2) * 32 + group % 2 * 16;
      high = low + 32;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(rounded.values));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(rounded.values, 1));
    alignas(32) std::int32_t fours[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(fours), rounded.sums_of_four);
    std::int32_t total = 0;
    for (const std::int32_t four : fours) total += four;
    if (to.layout == Layout::bytes)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.starts + at * 8),
                          _mm256_mullo_epi32(rounded.sums_of_four, _mm256_set1_epi32(-to.unsigned_offset)));
    else if (to.layout == Layout::panels)
      to.starts[at] = -to.unsigned_offset * total;
    to.scales[at] = rounded.scale;
    to.sums[at] = rounded.sum;
    to.rounded_sums[at] = rounded.scale * static_cast<float>(total);
  }
}

using ColumnsFunction = void (*)(const RoundedRows&, const CompactWeights&, std::int64_t, std::int64_t, float*,
                                 std::int64_t);

template <bool nibbles>
constexpr auto columns_functions = []<int... i>(std::integer_sequence<int, i...>) {
  return std::array<ColumnsFunction, most_rows>{&multiply_columns<i + 1, nibbles>...};
}
(std::make_integer_sequence<int, most_rows>());
