#include "models/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <jerboa/base/float16.h>

namespace jerboa::models {
namespace {

constexpr std::size_t group = quantised_group, half = group / 2;

std::uint16_t half_word(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

// Kernels may rely on int8 weights being at least -127; ggml itself writes no others.
bool has_lowest(const std::byte* weights) {
  return std::find(weights, weights + group, std::byte{0x80}) != weights + group;
}

/// Sixteen bytes with the low bits of weights j and j + 16, and possibly a fifth bit of each, to integers.
void widen(const std::byte* nibbles, std::uint32_t fifth, int zero, std::byte* to) {
  for (std::size_t j = 0; j < half; ++j) {
    const int low = std::to_integer<int>(nibbles[j] & std::byte{15}), high = std::to_integer<int>(nibbles[j] >> 4);
    const int low_fifth = static_cast<int>(fifth >> j & 1U) * 16;
    const int high_fifth = static_cast<int>(fifth >> (j + half) & 1U) * 16;
    to[j] = static_cast<std::byte>(low + low_fifth - zero);
    to[j + half] = static_cast<std::byte>(high + high_fifth - zero);
  }
}

/// Q4_1 counts integers from 0, int4 from -8, which the minimum makes up for.
std::uint16_t shifted_min(std::uint16_t scale, std::uint16_t min) {
  return f32_to_f16(f16_to_f32(min) + 8 * f16_to_f32(scale));
}

bool split_block(GgmlType type, const std::byte* block, DType dtype, std::byte* weights, std::uint16_t* min) {
  constexpr std::size_t scale = sizeof(std::uint16_t);
  switch (type) {
    case GgmlType::Q8_0: std::memcpy(weights, block + scale, group); return !has_lowest(weights);
    case GgmlType::Q5_0: {
      std::uint32_t fifth = 0;
      std::memcpy(&fifth, block + scale, sizeof fifth);
      widen(block + scale + sizeof fifth, fifth, 16, weights);
      return true;
    }
    case GgmlType::Q4_0:
      if (dtype == DType::i8) {
        widen(block + scale, 0, 8, weights);
      } else {
        std::memcpy(weights, block + scale, half);
        *min = 0;
      }
      return true;
    case GgmlType::Q4_1:
      std::memcpy(weights, block + 2 * scale, half);
      *min = shifted_min(half_word(block), half_word(block + scale));
      return std::isfinite(f16_to_f32(*min));
    default: return false;
  }
}

}  // namespace

bool fits_quantised(GgmlType type, DType dtype) {
  if (dtype == DType::i8) return type == GgmlType::Q8_0 || type == GgmlType::Q5_0 || type == GgmlType::Q4_0;
  return dtype == DType::i4 && (type == GgmlType::Q4_0 || type == GgmlType::Q4_1);
}

bool split_blocks(GgmlType type, std::span<const std::byte> blocks, DType dtype, const QuantisedParts& parts) {
  const std::size_t block = block_bytes(type), count = blocks.size() / block;
  const bool is_int4 = dtype == DType::i4;
  const std::size_t each = is_int4 ? half : group;
  if (parts.weights.size() != count * each || parts.scales.size() != count) return false;
  if (is_int4 && parts.mins.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* from = blocks.data() + i * block;
    parts.scales[i] = half_word(from);
    if (!split_block(type, from, dtype, parts.weights.data() + i * each, is_int4 ? &parts.mins[i] : nullptr))
      return false;
  }
  return true;
}

}  // namespace jerboa::models
