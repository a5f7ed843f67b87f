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
  const double min = quantised.mins ? quantised.mins->number(i / 32) : 0;
  return static_cast<float>(quantised.weight.number(i) * quantised.scales.number(i / 32) + min);
}

// The sum of squared errors.
double error_of(const Quantised& quantised, const std::vector<float>& values) {
  double error = 0;
  for (std::int64_t i = 0; i < quantised.weight.size(); ++i)
    error += std::pow(value_at(quantised, i) - values[static_cast<std::size_t>(i)], 2);
  return error;
}

// That of rounding a group to `steps` steps over its whole range, around 0 or from its least value.
double plain_error(const std::vector<float>& values, int steps, bool around_zero) {
  double error = 0;
  for (std::size_t first = 0; first < values.size(); first += 32) {
    const auto [least, most] = std::minmax_element(values.begin() + static_cast<std::ptrdiff_t>(first),
                                                   values.begin() + static_cast<std::ptrdiff_t>(first + 32));
    const double low = around_zero ? 0 : *least, largest = std::max(std::abs(*least), std::abs(*most));
    const double step = around_zero ? 2 * largest / steps : (static_cast<double>(*most) - *least) / steps;
    for (std::size_t i = first; i < first + 32; ++i)
      error += std::pow(low + std::nearbyint((values[i] - low) / step) * step - values[i], 2);
  }
  return error;
}

// Weights with a normal distribution, as real ones have, and of different magnitudes.
std::vector<float> normal_values(std::size_t count) {
  SplitMix random(2);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::sqrt(-2 * std::log(1 - random.uniform())) *
                                   std::cos(6.283185307 * random.uniform()) * (i % 64 < 32 ? 0.02 : 3));
  return values;
}

TEST(Quantise, HasLessErrorThanStepsOverTheWholeRange) {
  for (const auto& values : {random_values(96 * 40), normal_values(96 * 40)}) {
    EXPECT_LT(error_of(quantise(values, 40, 96, DType::i8), values), plain_error(values, 254, true));
    EXPECT_LT(error_of(quantise(values, 40, 96, DType::i4), values), 0.95 * plain_error(values, 15, false));
  }
}

TEST(Quantise, KeepsEveryWeightWithinAStep) {
  const auto values = normal_values(96 * 40);
  for (const DType dtype : {DType::i8, DType::i4}) {
    const Quantised quantised = quantise(values, 40, 96, dtype);
    EXPECT_EQ(quantised.mins.has_value(), dtype == DType::i4);
    for (std::int64_t i = 0; i < quantised.weight.size(); ++i)
      EXPECT_NEAR(value_at(quantised, i), values[static_cast<std::size_t>(i)],
                  1.3 * std::abs(quantised.scales.number(i / 32)))
          << name(dtype) << " " << i;
  }
}

// The split into threads must not show.
TEST(Quantise, GivesEachRowWhatItGetsAlone) {
  constexpr std::int64_t rows = 300, columns = 1024;
  const auto values = normal_values(rows * columns);
  const Quantised all = quantise(values, rows, columns, DType::i4);
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{149}, std::int64_t{150}, rows - 1}) {
    const Quantised one =
        quantise(std::span(values).subspan(static_cast<std::size_t>(row * columns), columns), 1, columns, DType::i4);
    for (std::int64_t i = 0; i < columns; ++i)
      ASSERT_EQ(value_at(one, i), value_at(all, row * columns + i)) << row << ", " << i;
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
