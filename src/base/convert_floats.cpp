#include "base/convert_floats.h"

#include <cstring>

#include <jerboa/base/bit_cast.h>

namespace jerboa::detail {
namespace {

constexpr std::uint32_t magnitude_bits = 0x7fffffffU, infinity_bits = 0x7f800000U;

// All ones if a < b, with both below 2^31: from the sign of the difference, because compilers turn comparisons into
// branches.
constexpr std::uint32_t below(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
}
constexpr std::uint32_t select(std::uint32_t which, std::uint32_t yes, std::uint32_t no) {
  return (yes & which) | (no & ~which);
}

float wide_f16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16, shifted = (half & 0x7fffU) << 13;
  // Read as an f32, the exponent is too small by 112. The product is exact, for subnormal halves too.
  const auto finite = bit_cast<std::uint32_t>(bit_cast<float>(shifted) * 0x1p112F);
  return bit_cast<float>(sign | select(below(shifted, 0x0f800000U), finite, shifted | infinity_bits));
}

std::uint16_t narrow_f16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, magnitude = bits & magnitude_bits;
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - (112U << 23)) >> 13;
  // Adding 0.5 leaves a subnormal half in the last bits, rounded as the addition rounds: to nearest, ties to even.
  const std::uint32_t small = bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  std::uint32_t half = select(below(magnitude, 0x38800000U), small, normal);
  half = select(below(magnitude, 0x477ff000U), half, 0x7c00U);
  half = select(below(infinity_bits, magnitude), nan, half);
  return static_cast<std::uint16_t>(sign | half);
}

float wide_bf16(std::uint16_t half) { return bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

std::uint16_t narrow_bf16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(select(below(infinity_bits, bits & magnitude_bits), (bits >> 16) | 0x40U, rounded));
}

template <auto convert>
void widen(std::span<const std::byte> from, std::span<float> to) {
  const std::byte* at = from.data();
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, at + i * sizeof(half), sizeof(half));
    to[i] = convert(half);
  }
}

template <auto convert>
void narrow(std::span<const float> from, std::span<std::byte> to) {
  std::byte* at = to.data();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t half = convert(from[i]);
    std::memcpy(at + i * sizeof(half), &half, sizeof(half));
  }
}

}  // namespace

void widen_f16(std::span<const std::byte> from, std::span<float> to) { widen<wide_f16>(from, to); }
void widen_bf16(std::span<const std::byte> from, std::span<float> to) { widen<wide_bf16>(from, to); }
void narrow_to_f16(std::span<const float> from, std::span<std::byte> to) { narrow<narrow_f16>(from, to); }
void narrow_to_bf16(std::span<const float> from, std::span<std::byte> to) { narrow<narrow_bf16>(from, to); }

}  // namespace jerboa::detail
