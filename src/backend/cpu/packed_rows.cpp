#include "backend/cpu/packed_rows.h"

#include <algorithm>

#include <jerboa/base/bit_cast.h>

namespace jerboa::cpu {
namespace {

constexpr std::uint32_t infinity_bits = 0x7f800000u, smallest_normal_bits = 0x00800000u;

// The scale of some features as bf16. Magnitudes are compared by their bits, in which infinity and NaN come last.
std::uint16_t scale_of(const float* features, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, bit_cast<std::uint32_t>(features[i]) & 0x7fffffffu);
  if (largest >= infinity_bits) return static_cast<std::uint16_t>(infinity_bits >> 16 | 0x40u);
  const float scale = bit_cast<float>(largest) / largest_packed;
  return bit_cast<std::uint32_t>(scale) < smallest_normal_bits ? 0 : f32_to_bf16(scale);
}

// bytes = features / scale, rounded.
void round_features(const float* features, std::int64_t count, std::uint16_t scale, std::int8_t* bytes) {
  const float wide = bf16_to_f32(scale);
  if (!(wide > 0)) {
    std::fill_n(bytes, count, std::int8_t{0});
    return;
  }
  // The largest magnitude is 127 steps plus at most a quarter of a step, from rounding the scale. Adding this rounds to
  // an integer, whose lowest byte is the lowest byte of the sum.
  constexpr float shift = 0x1.8p23F;
  for (std::int64_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::int8_t>(bit_cast<std::uint32_t>(features[i] / wide + shift));
}

}  // namespace

void pack_row(const float* features, std::int64_t size, std::uint32_t* words) {
  std::fill_n(words + size / features_per_word, packed_words(size) - size / features_per_word, 0u);
  auto* scales = reinterpret_cast<std::uint8_t*>(words + size / features_per_word);
  for (std::int64_t first = 0; first < size; first += features_per_scale) {
    const std::int64_t count = std::min(features_per_scale, size - first);
    const std::uint16_t scale = scale_of(features + first, count);
    std::memcpy(scales + first / features_per_scale * 2, &scale, sizeof(scale));
    round_features(features + first, count, scale, reinterpret_cast<std::int8_t*>(words) + first);
  }
}

}  // namespace jerboa::cpu
