#include "backend/cpu/reference/packed_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <jerboa/base/float16.h>

namespace jerboa::reference {
namespace {

std::int64_t first_scale(std::int64_t size) { return size / features_per_word; }

// Sets the bits from `shift` on, which must be 0, to `value`.
void put_bits(double& word, std::uint32_t value, std::int64_t shift) {
  word = static_cast<std::uint32_t>(word) | (value << shift);
}

std::uint32_t bits_at(double word, std::int64_t shift) { return static_cast<std::uint32_t>(word) >> shift; }

std::uint16_t scale_of(const double* features, std::int64_t count) {
  double largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(features[i]);
    largest = std::max(largest, std::abs(features[i]));
  }
  if (!finite) return f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
  const double scale = largest / largest_packed;
  return scale < std::numeric_limits<float>::min() ? 0 : f32_to_bf16(static_cast<float>(scale));
}

}  // namespace

void pack_row(const double* features, std::int64_t size, double* words) {
  std::fill_n(words, packed_words(size), 0.0);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t group = i / features_per_scale, first = group * features_per_scale;
    const std::uint16_t scale = scale_of(features + first, std::min(features_per_scale, size - first));
    if (i == first) put_bits(words[first_scale(size) + group / 2], scale, group % 2 * 16);
    const double wide = bf16_to_f32(scale);
    if (!(wide > 0)) continue;
    const double byte = std::clamp<double>(std::nearbyint(features[i] / wide), -largest_packed, largest_packed);
    put_bits(words[i / features_per_word], static_cast<std::uint8_t>(static_cast<std::int8_t>(byte)),
             i % features_per_word * 8);
  }
}

void unpack_row(const double* words, std::int64_t size, double* features) {
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t group = i / features_per_scale;
    const auto scale = static_cast<std::uint16_t>(bits_at(words[first_scale(size) + group / 2], group % 2 * 16));
    const auto byte = static_cast<std::int8_t>(bits_at(words[i / features_per_word], i % features_per_word * 8));
    features[i] = static_cast<double>(byte) * bf16_to_f32(scale);
  }
}

}  // namespace jerboa::reference
