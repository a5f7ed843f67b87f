#pragma once

#include <cstdint>

namespace jerboa::memory {

/// Rows are padded to a multiple of this with zeros, so that kernels need no remainder loop.
inline constexpr std::int64_t dot_product_multiple = 32;

/// The dot product of each row, f32[count, size], with a vector.
void dot_products(const float* rows, std::int64_t count, std::int64_t size, const float* vector, float* out);

}  // namespace jerboa::memory
