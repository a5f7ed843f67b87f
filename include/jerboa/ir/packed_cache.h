#pragma once

#include <cstdint>

#include <jerboa/base/dtype.h>

// The layout of a row of features in an 8-bit key/value cache. Its elements are u32, which every op moves unchanged, so
// that such a cache is paged, copied, saved and restored like any other; only cache_append and attention interpret it.
//
// A row of `size` features, a multiple of 4, is size / 4 words of four signed bytes, the first feature in the lowest,
// and then a bf16 scale for each 32 features, two to a word, the first in the lower half. A feature is its byte times
// the scale of its group. bf16 has the range of f32, so that no scale overflows or vanishes, and becomes f32 by a
// shift.
namespace jerboa {

inline constexpr DType packed_cache = DType::u32;  ///< the type of the words
inline constexpr std::int64_t features_per_word = 4;
inline constexpr std::int64_t features_per_scale = 32, features_per_scale_word = 2 * features_per_scale;
inline constexpr int largest_packed = 127;  ///< bytes are from -127 to 127

constexpr bool can_pack(std::int64_t size) { return size >= 0 && size % features_per_word == 0; }
/// The words of a row of `size` features.
constexpr std::int64_t packed_words(std::int64_t size) {
  return size / features_per_word + (size + features_per_scale_word - 1) / features_per_scale_word;
}
/// The features of a row of this many words; -1 if no row has this many.
constexpr std::int64_t unpacked_size(std::int64_t words) {
  constexpr std::int64_t whole = packed_words(features_per_scale_word);
  const std::int64_t rest = words % whole;
  if (words < 0 || rest == 1) return -1;
  return words / whole * features_per_scale_word + (rest > 0 ? (rest - 1) * features_per_word : 0);
}

}  // namespace jerboa
