#include "cli/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <jerboa/base/float16.h>
#include <jerboa/base/random.h>

namespace jerboa::cli {

std::span<const std::byte> RandomWeights::bytes(DType dtype, bool is_scale, std::int64_t count) {
  Block& block = block_of(dtype, is_scale);
  values_.resize(static_cast<std::size_t>(count));
  for (std::size_t at = 0; at < values_.size();) {
    const std::size_t length = std::min(values_.size() - at, block.bytes.size() - block.next);
    std::memcpy(values_.data() + at, block.bytes.data() + block.next, length);
    at += length;
    block.next = (block.next + length) % block.bytes.size();
  }
  return values_;
}

RandomWeights::Block& RandomWeights::block_of(DType dtype, bool is_scale) {
  Block& block = blocks_[{dtype, is_scale}];
  if (!block.bytes.empty()) return block;
  constexpr std::size_t block_values = (1u << 20) + 7;
  constexpr double deviation = 0.02, scale = 0.002;
  SplitMix random(1);
  const auto append = [&](auto value) { block.bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (std::size_t i = 0; i < block_values; ++i) {
    const double spread = (random.uniform() - 0.5) * std::sqrt(12.0) * deviation;
    const auto value = static_cast<float>(is_scale ? scale : spread);
    if (dtype == DType::f32)
      append(value);
    else if (dtype == DType::f16)
      append(f32_to_f16(value));
    else if (dtype == DType::bf16)
      append(f32_to_bf16(value));
    else
      append(static_cast<std::uint8_t>(random.next()));
  }
  return block;
}

}  // namespace jerboa::cli
