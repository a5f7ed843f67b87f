#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace jerboa::models {

/// The suffixes that name a weight's blocks and their scales in a checkpoint.
inline constexpr std::string_view mxfp4_blocks_suffix = "_blocks";
inline constexpr std::string_view mxfp4_scales_suffix = "_scales";
inline constexpr std::int64_t mxfp4_group = 32;  ///< weights in a block

/// The values of weights in MXFP4, as gpt-oss's checkpoints hold them: 32 weights of four bits each in 16 bytes, the
/// first of a pair in the low half, and for each such block one byte with the exponent of their common scale.
void dequantise_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<float> values);

}  // namespace jerboa::models
