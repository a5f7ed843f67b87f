// Products of many rows with int8 or int4 weights, with the 512-bit instructions of VNNI: 32 columns of weights at a
// time are packed so that a vector holds four adjacent bytes of 16 columns, which are multiplied by the same four bytes
// of a row.

constexpr std::int64_t panel_columns = 32;  // two vectors
constexpr int panel_rows = 6;               // whose sums fit into registers, in integers and in f32

/// Transposes eight vectors of eight 32-bit numbers.
HWY_INLINE void transpose(__m256i* v) {
  __m256i pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
      fours[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}

/// 32 columns of weights, with zeros past the end of the matrix, group after group.
struct Panel {
  struct Group {
    alignas(64) std::uint8_t weights[8][panel_columns][4];  ///< plus the rows' unsigned_offset
    alignas(64) float scales[panel_columns], mins[panel_columns];
  };
  Group* groups = nullptr;  ///< from `begin` on
  std::int64_t begin = 0, end = 0;
  std::int64_t bytes_per_group = 0;  ///< of the source weights
};

template <bool nibbles>
HWY_INLINE __m256i unsigned_group(const std::byte* weights, std::int64_t group) {
  if constexpr (!nibbles) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + group * 32));
    return _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  }
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + group * 16));
  const __m128i fifteen = _mm_set1_epi8(15);
  return _mm256_setr_m128i(_mm_and_si128(both, fifteen), _mm_and_si128(_mm_srli_epi16(both, 4), fifteen));
}

/// Packs the scales or minimums of up to 8 groups of a panel's columns, which are `stride` apart per column.
HWY_INLINE void pack_per_group(const std::uint16_t* from, std::int64_t columns, std::int64_t stride,
                               std::int64_t groups, float (Panel::Group::*part)[panel_columns], Panel::Group* to) {
  for (std::int64_t column = 0; column < panel_columns; column += 8) {
    __m256i values[8];
    for (std::int64_t i = 0; i < 8; ++i)
      values[i] = column + i < columns ? _mm256_castps_si256(load_per_group(from + (column + i) * stride, groups))
                                       : _mm256_setzero_si256();
    transpose(values);
    for (std::int64_t group = 0; group < groups; ++group)
      _mm256_store_si256(reinterpret_cast<__m256i*>((to[group].*part) + column), values[group]);
  }
}

/// Prefetches the data of a panel's columns some groups ahead into the L2 cache: the hardware does not prefetch that
/// many streams. An address need not be valid.
template <bool nibbles>
HWY_INLINE void prefetch_columns(const CompactWeights& weights, std::int64_t first, std::int64_t columns,
                                 std::int64_t groups, std::int64_t group) {
  constexpr std::int64_t bytes = nibbles ? 16 : 32, groups_ahead = 24;
  if (group * bytes % 64 != 0) return;
  const std::byte* from = weights.values + (first * groups + group + groups_ahead) * bytes;
  for (std::int64_t column = 0; column < columns; ++column) __builtin_prefetch(from + column * groups * bytes, 0, 2);
}

/// Packs some groups of 32 columns; all columns have `groups`. Processes eight columns at a time, whose cache lines are
/// used up before others are read: columns that are a power of two apart evict each other from the L1 cache.
template <bool nibbles>
void pack_panel(const CompactWeights& weights, std::int64_t first, std::int64_t columns, std::int64_t groups,
                const Panel& panel) {
  const auto* scales = reinterpret_cast<const std::uint16_t*>(weights.scales) + first * groups;
  const auto* mins = reinterpret_cast<const std::uint16_t*>(weights.mins);
  if (mins != nullptr) mins += first * groups;
  for (std::int64_t begin = panel.begin; begin < panel.end; begin += 8) {
    const std::int64_t some = std::min<std::int64_t>(8, panel.end - begin);
    Panel::Group* to = panel.groups + (begin - panel.begin);
    for (std::int64_t group = 0; group < some; ++group)
      prefetch_columns<nibbles>(weights, first, columns, groups, begin + group);
    for (std::int64_t column = 0; column < panel_columns; column += 8)
      for (std::int64_t group = 0; group < some; ++group) {
        __m256i values[8];
        for (std::int64_t i = 0; i < 8; ++i)
          values[i] = column + i < columns
                          ? unsigned_group<nibbles>(weights.values, (first + column + i) * groups + begin + group)
                          : _mm256_setzero_si256();
        transpose(values);
        for (int i = 0; i < 8; ++i)
          _mm256_store_si256(reinterpret_cast<__m256i*>(to[group].weights[i][column]), values[i]);
      }
    pack_per_group(scales + begin, columns, groups, some, &Panel::Group::scales, to);
    if (mins != nullptr) pack_per_group(mins + begin, columns, groups, some, &Panel::Group::mins, to);
  }
}

/// Prefetches a group's share of some contiguous columns of weights into the L2 cache.
HWY_INLINE void prefetch_share(const std::byte* weights, std::int64_t bytes_per_group, std::int64_t group) {
  const std::byte* from = weights + group * bytes_per_group;
  for (std::int64_t at = 0; at < bytes_per_group; at += 64) __builtin_prefetch(from + at, 0, 2);
}

/// Multiplies some rows by a panel's groups, and adds the results to c[i, j], with rows panel_columns apart, or stores
/// them if the groups are the first. At the same time prefetches the weights of the `next` panel, unless it is null, so
/// that memory and arithmetic overlap.
template <int rows, bool with_mins>
void multiply_panel(const RoundedRows& a, std::int64_t first_row, const Panel& panel, const std::byte* next, float* c) {
  __m512 sums[rows][2];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < 2; ++j)
      sums[i][j] = panel.begin == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * panel_columns + j * 16);
  const std::int64_t first = first_row * a.groups;
  for (std::int64_t group = panel.begin; group < panel.end; ++group) {
    const Panel::Group& weights = panel.groups[group - panel.begin];
    if (next != nullptr) prefetch_share(next, panel.bytes_per_group, group);
    __m512i dots[rows][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; ++i) dots[i][0] = dots[i][1] = _mm512_set1_epi32(a.starts[first + i * a.groups + group]);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      const __m512i left = _mm512_load_si512(weights.weights[k]), right = _mm512_load_si512(weights.weights[k] + 16);
#pragma GCC unroll 6
      for (int i = 0; i < rows; ++i) {
        std::int32_t four;
        std::memcpy(&four, a.values + (first + i * a.groups + group) * 32 + std::int64_t{4} * k, 4);
        const __m512i values = _mm512_set1_epi32(four);
        dots[i][0] = _mm512_dpbusd_epi32(dots[i][0], left, values);
        dots[i][1] = _mm512_dpbusd_epi32(dots[i][1], right, values);
      }
    }
    const __m512 left = _mm512_load_ps(weights.scales), right = _mm512_load_ps(weights.scales + 16);
#pragma GCC unroll 6
    for (int i = 0; i < rows; ++i) {
      const std::int64_t at = first + i * a.groups + group;
      const __m512 scale = _mm512_set1_ps(a.scales[at]);
      sums[i][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i][0]), _mm512_mul_ps(left, scale), sums[i][0]);
      sums[i][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i][1]), _mm512_mul_ps(right, scale), sums[i][1]);
      if constexpr (with_mins) {
        const __m512 sum = _mm512_set1_ps(a.sums[at]);
        sums[i][0] = _mm512_fmadd_ps(_mm512_load_ps(weights.mins), sum, sums[i][0]);
        sums[i][1] = _mm512_fmadd_ps(_mm512_load_ps(weights.mins + 16), sum, sums[i][1]);
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    _mm512_storeu_ps(c + i * panel_columns, sums[i][0]);
    _mm512_storeu_ps(c + i * panel_columns + 16, sums[i][1]);
  }
}

using PanelFunction = void (*)(const RoundedRows&, std::int64_t, const Panel&, const std::byte*, float*);

template <bool with_mins>
constexpr auto panel_functions = []<int... i>(std::integer_sequence<int, i...>) {
  return std::array<PanelFunction, panel_rows>{&multiply_panel<i + 1, with_mins>...};
}
(std::make_integer_sequence<int, panel_rows>());
