#include "models/mxfp4.h"

#include <array>
#include <cmath>

namespace jerboa::models {

void dequantise_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<float> values) {
  constexpr std::array<float, 16> numbers{0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  constexpr std::size_t bytes_per_block = 16;
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const float scale = std::ldexp(1.f, std::to_integer<int>(scales[block]) - 127);
    for (std::size_t i = 0; i < bytes_per_block; ++i) {
      const std::size_t at = block * bytes_per_block + i;
      const auto pair = std::to_integer<unsigned>(blocks[at]);
      values[2 * at] = numbers[pair & 15u] * scale;
      values[2 * at + 1] = numbers[pair >> 4u] * scale;
    }
  }
}

}  // namespace jerboa::models
