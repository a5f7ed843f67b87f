#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <jerboa/base/dtype.h>

namespace jerboa::models {

/// Where the groups' integers, scales and, for int4, minimums are written, group after group.
struct GroupMemory {
  std::uint8_t* integers = nullptr;
  std::uint16_t *scales = nullptr, *mins = nullptr;
};

/// Quantises the leading groups of these values that fill whole vectors, one group per lane, and returns their number.
/// The bits are those of fit_group and Rounding on every instruction set.
std::size_t quantise_in_lanes(std::span<const float> values, DType dtype, const GroupMemory& to);

}  // namespace jerboa::models
