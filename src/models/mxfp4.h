#pragma once

#include <cstddef>
#include <span>

namespace jerboa::models {

/// The values of weights in MXFP4, as gpt-oss's checkpoints hold them: 32 weights of four bits each in 16 bytes, the
/// first of a pair in the low half, and for each such block one byte with the exponent of their common scale.
void dequantise_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<float> values);

}  // namespace jerboa::models
