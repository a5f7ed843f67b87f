#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <jerboa/base/dtype.h>

// Groups of weights that share a scale, the basis of all ways to quantise.
namespace jerboa::models {

inline constexpr std::size_t group_size = quantised_group;
using Group = std::array<float, group_size>;

/// The scale and minimum of a group, in f16 as they are stored. The minimum of int8 is 0.
struct GroupScale {
  std::uint16_t scale = 0, min = 0;
};

/// The scale and minimum with the least squared error among a few candidates. `importance` weighs the squared error of
/// each weight; it must not be negative, nor zero throughout.
GroupScale fit_group(const Group& values, DType dtype, const Group* importance = nullptr);

/// How far the ranges that are tried for int4 extend past the values on either side, in steps: integers span a little
/// more than the values, or a little less. The best range differs from group to group, since it depends on where all
/// values lie between the steps, so trying a few of them pays.
inline constexpr std::array range_margins{-0.4F, 0.0F, 0.4F, 0.8F};
/// Refining integers and fit in turn converges after a few rounds.
inline constexpr int refinements = 3;

/// The minimum of a group with NaN or infinite values. It is fixed, because the NaN that arithmetic gives depends on
/// the CPU.
inline constexpr std::uint16_t f16_nan = 0x7e00;

struct IntegerRange {
  float low, high;
};
constexpr IntegerRange range_of(DType dtype) {
  return dtype == DType::i8 ? IntegerRange{-127, 127} : IntegerRange{-8, 7};
}

/// The integers closest to (value - min) / scale.
class Rounding {
 public:
  Rounding(float scale, float min, IntegerRange range)
      : inverse_(scale == 0 ? 0 : 1 / scale), min_(min), range_(range) {}
  float operator()(float value) const {
    // in this order, NaN is clamped to a number
    return to_nearest(std::min(range_.high, std::max(range_.low, (value - min_) * inverse_)));
  }

 private:
  // Rounds ties to even, for values between -2^22 and 2^22: not every x86 CPU has a vector instruction for
  // std::nearbyint.
  static float to_nearest(float value) {
    constexpr float shift = 0x1.8p23F;
    return (value + shift) - shift;
  }

  float inverse_, min_;
  IntegerRange range_;
};

/// Packs integers in the layout that DType documents.
void pack_group(const Group& integers, DType dtype, std::uint8_t* to);

}  // namespace jerboa::models
