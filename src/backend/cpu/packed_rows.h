#pragma once

#include <cstdint>
#include <cstring>

#include <jerboa/base/float16.h>
#include <jerboa/ir/packed_cache.h>

namespace jerboa::cpu {

/// Rounds a row of features to a row of an 8-bit cache, packed_words(size) words.
void pack_row(const float* features, std::int64_t size, std::uint32_t* words);

/// The scale of feature i of such a row.
inline float packed_scale(const std::uint32_t* row, std::int64_t size, std::int64_t i) {
  const auto* scales = reinterpret_cast<const std::uint8_t*>(row + size / features_per_word);
  std::uint16_t bits = 0;
  std::memcpy(&bits, scales + i / features_per_scale * 2, sizeof(bits));
  return bf16_to_f32(bits);
}

}  // namespace jerboa::cpu
