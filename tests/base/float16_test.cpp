#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/float16.h>

namespace jerboa {
namespace {

constexpr int half_infinity = 0x7c00, bfloat_infinity = 0x7f80;

/// The value of a finite 16-bit float by the definition of the format, in f64, where all of them are exact.
double value_by_definition(int bits, int fraction_bits, int bias) {
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                         : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Float16, ReadsEveryFiniteHalfByItsDefinition) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    if ((bits & half_infinity) == half_infinity) continue;
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(value, value_by_definition(bits, 10, 15)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
  }
}

TEST(Float16, ReadsEveryFiniteBfloatByItsDefinition) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    if ((bits & bfloat_infinity) == bfloat_infinity) continue;
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(value, value_by_definition(bits, 7, 127)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
  }
}

TEST(Float16, KeepsEveryValueInARoundTrip) {
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const bool half_nan = (bits & 0x7fff) > half_infinity, bfloat_nan = (bits & 0x7fff) > bfloat_infinity;
    ASSERT_EQ(std::isnan(f16_to_f32(bits)), half_nan) << bits;
    ASSERT_EQ(std::isnan(bf16_to_f32(bits)), bfloat_nan) << bits;
    // A NaN comes back quiet, with its sign and payload.
    ASSERT_EQ(f32_to_f16(f16_to_f32(bits)), bits | (half_nan ? 0x200 : 0)) << bits;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(bits)), bits | (bfloat_nan ? 0x40 : 0)) << bits;
  }
}

/// Rounding is monotonic between two neighbours, so testing the floats on, just below and just above each midpoint
/// covers all floats. Past the largest finite value, infinity takes the place of the next value.
void expect_rounding(std::uint16_t (*round)(float), int infinity, int fraction_bits, int bias) {
  for (int low = 0; low < infinity; ++low) {
    const double a = value_by_definition(low, fraction_bits, bias);
    const double b = value_by_definition(low + 1, fraction_bits, bias);
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(middle, (a + b) / 2) << "the midpoint is a float";
    const int even = (low & 1) == 0 ? low : low + 1;
    for (const int sign : {0, 0x8000}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(round(s * static_cast<float>(a)), low | sign) << low;
      ASSERT_EQ(round(s * std::nextafter(middle, 0.0f)), low | sign) << low;
      ASSERT_EQ(round(s * middle), even | sign) << low;
      ASSERT_EQ(round(s * std::nextafter(middle, std::numeric_limits<float>::infinity())), (low + 1) | sign) << low;
    }
  }
  for (const float beyond : {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(round(beyond), infinity);
    EXPECT_EQ(round(-beyond), infinity | 0x8000);
  }
}

TEST(Float16, RoundsToTheNearestHalfWithTiesToEven) { expect_rounding(f32_to_f16, half_infinity, 10, 15); }

TEST(Float16, RoundsToTheNearestBfloatWithTiesToEven) { expect_rounding(f32_to_bf16, bfloat_infinity, 7, 127); }

TEST(Float16, RoundsTheSmallestFloatsToZero) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(f32_to_f16(smallest), 0);
  EXPECT_EQ(f32_to_f16(-smallest), 0x8000);
  EXPECT_EQ(f32_to_bf16(smallest), 0);
}

TEST(Float16, KeepsANanWhosePayloadIsInTheLowBits) {
  const float nan = bit_cast<float>(0xff800001u);  // truncating its bits would make it infinity
  EXPECT_EQ(f32_to_f16(nan), 0xfe00);
  EXPECT_EQ(f32_to_bf16(nan), 0xffc0);
}

}  // namespace
}  // namespace jerboa
