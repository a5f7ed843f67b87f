#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <jerboa/base/dtype.h>

namespace jerboa::models {

/// Where groups are put, one after another: their integers, scales and, for int4, minimums.
struct GroupMemory {
  std::uint8_t* integers = nullptr;
  std::uint16_t *scales = nullptr, *mins = nullptr;
};

/// Quantises the first groups of these values, as many as fill whole vectors that have a group in each lane, and
/// returns how many those are. Gives the bits of fit_group and Rounding on every instruction set.
std::size_t quantise_in_lanes(std::span<const float> values, DType dtype, const GroupMemory& to);

}  // namespace jerboa::models
