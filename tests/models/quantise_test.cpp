#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/models/quantise.h>

#include "support/expect_error.h"

namespace jerboa::models {
namespace {

std::vector<float> random_values(std::size_t count) {
  SplitMix random(1);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

// The dequantised weight.
float value_at(const Quantised& quantised, std::int64_t i) {
  return static_cast<float>(quantised.weight.number(i) * quantised.scales.number(i / 32));
}

TEST(Quantise, RoundsToWithinHalfAStep) {
  const auto values = random_values(384);
  for (const auto& [dtype, steps] : {std::pair(DType::i8, 127.0F), std::pair(DType::i4, 8.0F)}) {
    const Quantised quantised = quantise(values, 4, 96, dtype);
    for (std::int64_t i = 0; i < quantised.weight.size(); ++i) {
      float largest = 0;
      for (std::int64_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k)
        largest = std::max(largest, std::abs(values[static_cast<std::size_t>(k)]));
      // For int4, values at the shorter end of the range may be off by a whole step.
      const float step = largest / steps * (dtype == DType::i4 ? 1.01F : 0.51F);
      EXPECT_NEAR(value_at(quantised, i), values[static_cast<std::size_t>(i)], step) << name(dtype) << " " << i;
    }
  }
}

TEST(Quantise, KeepsWhatFitsExactly) {
  std::vector<float> values(64, 0);
  for (std::size_t i = 0; i < 32; ++i) values[i] = 0.25F * (static_cast<float>(i % 16) - 8);
  const Quantised quantised = quantise(values, 2, 32, DType::i4);
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(value_at(quantised, i), values[static_cast<std::size_t>(i)]) << i;
}

TEST(Quantise, RefusesWhatItCannot) {
  const auto values = random_values(96);
  test::expect_error<UsageError>([&] { quantise(values, 2, 48, DType::i8); },
                                 "the row length must be a multiple of 32");
  test::expect_error<UsageError>([&] { quantise(values, 1, 96, DType::f16); }, "to int8 or int4, not to f16");
}

}  // namespace
}  // namespace jerboa::models
