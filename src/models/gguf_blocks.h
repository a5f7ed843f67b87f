#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <jerboa/base/dtype.h>
#include <jerboa/io/gguf.h>

// ggml blocks that match groups of int8 or int4 weights.
namespace jerboa::models {

/// Where the parts of a quantised matrix go (TensorSource::read_quantised).
struct QuantisedParts {
  std::span<std::byte> weights;
  std::span<std::uint16_t> scales, mins;  ///< int8 has no minimums
};

/// Whether this type's blocks are groups of 32 with a scale, and possibly a minimum, whose integers fit `dtype`.
bool fits_quantised(GgmlType type, DType dtype);
/// Splits such blocks into their parts. Returns false if the sizes of the parts differ or if a value is out of range.
bool split_blocks(GgmlType type, std::span<const std::byte> blocks, DType dtype, const QuantisedParts& parts);

}  // namespace jerboa::models
