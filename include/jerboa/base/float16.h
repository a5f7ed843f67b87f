#pragma once

#include <cstdint>

#include <jerboa/base/bit_cast.h>

namespace jerboa {

// Conversions between the bits of 16-bit floats and f32. To 16 bits they round to nearest, ties to even; overflow gives
// infinity, subnormals are kept, and a NaN stays a (quiet) NaN with its sign and the upper bits of its payload.

constexpr float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f) return bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal or zero: exact in f32
  return bit_cast<float>(sign | bit_cast<std::uint32_t>(magnitude));
}

constexpr std::uint16_t f32_to_f16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude >= 0x38800000u) {                                                   // 2^-14: a normal half
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<std::uint16_t>(sign);  // at most 2^-25, half the smallest subnormal
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24: the bits below one unit of 2^-24
  const std::uint32_t units = significand >> shift;
  const std::uint32_t rest = significand & ((1u << shift) - 1);
  const std::uint32_t tie = 1u << (shift - 1);
  const bool up = rest > tie || (rest == tie && (units & 1u) != 0);
  return static_cast<std::uint16_t>(sign | (units + (up ? 1 : 0)));
}

constexpr float bf16_to_f32(std::uint16_t bits) { return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

constexpr std::uint16_t f32_to_bf16(float value) {
  const auto bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace jerboa
