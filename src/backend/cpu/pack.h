#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <jerboa/base/dtype.h>

namespace jerboa::cpu {

/// Copies a strided tensor of any float type into contiguous f32, and back. 32-bit elements of other types keep their
/// bits.
void pack_f32(const std::byte* memory, DType dtype, std::int64_t offset, const std::vector<std::int64_t>& sizes,
              const std::vector<std::int64_t>& strides, float* out);
void unpack_f32(const float* values, std::byte* memory, DType dtype, std::int64_t offset,
                const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides);

}  // namespace jerboa::cpu
