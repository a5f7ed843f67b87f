#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace jerboa::detail {

// The conversions of float16.h for whole arrays, bit for bit, in branch-free loops that compilers vectorise. The 16-bit
// floats may have any alignment; both arrays have the same number of elements.

void widen_f16(std::span<const std::byte> from, std::span<float> to);
void widen_bf16(std::span<const std::byte> from, std::span<float> to);
void narrow_to_f16(std::span<const float> from, std::span<std::byte> to);
void narrow_to_bf16(std::span<const float> from, std::span<std::byte> to);

}  // namespace jerboa::detail
