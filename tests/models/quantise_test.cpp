#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/models/quantise.h>

#include "base/crc32.h"
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

// The error of rounding a group to `steps` steps over its whole range, around 0 or from its least value.
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

// The perplexity of four-bit weights depends on this error: rounding over the whole range gives 0.0060, and few
// candidates for scale and minimum give 0.0050.
TEST(Quantise, FindsGoodScalesForFourBits) {
  const auto values = normal_values(96 * 400);
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) squares += static_cast<double>(values[i]) * values[i];
  EXPECT_LT(error_of(quantise(values, 400, 96, DType::i4), values), 0.0048 * squares);
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

// The result does not depend on the division into threads.
TEST(Quantise, QuantisesEachRowIndependently) {
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

TEST(Quantise, GivesTheSameWeightsOnAllMachines) {
  const auto checksum = [](const Quantised& quantised) {
    std::string bytes;
    const auto add = [&](const HostTensor& tensor) {
      bytes.append(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size());
    };
    add(quantised.weight);
    add(quantised.scales);
    if (quantised.mins) add(*quantised.mins);
    return crc32(bytes);
  };
  const auto values = random_values(96 * 400);
  EXPECT_EQ(checksum(quantise(values, 400, 96, DType::i4)), 3519345497u);
  EXPECT_EQ(checksum(quantise(values, 400, 96, DType::i8)), 191958494u);
}

TEST(Quantise, TakesSomeRowsAtATime) {
  const auto values = normal_values(6 * 64);
  const Quantised all = quantise(values, 6, 64, DType::i4);
  Quantised parts({3, 2, 64}, DType::i4);
  quantise_rows(std::span(values).first(2 * 64), 0, parts);
  quantise_rows(std::span(values).subspan(2 * 64), 2, parts);
  EXPECT_TRUE(std::equal(all.weight.bytes().begin(), all.weight.bytes().end(), parts.weight.bytes().begin()));
  EXPECT_TRUE(std::equal(all.scales.bytes().begin(), all.scales.bytes().end(), parts.scales.bytes().begin()));
  EXPECT_EQ(parts.scales.shape(), (std::vector<std::int64_t>{3, 2, 2}));
  test::expect_error<UsageError>([&] { quantise_rows(std::span(values).first(2 * 64), 5, parts); },
                                 "128 weights are not whole rows of [3, 2, 64] from row 5 on");
}

// Inputs with correlated features, like those of real layers: sums of a few random directions.
std::vector<float> correlated_inputs(std::size_t count, std::size_t size) {
  constexpr std::size_t directions = 40;
  const auto basis = normal_values(directions * size), weights = random_values(count * directions);
  std::vector<float> inputs(count * size);
  for (std::size_t n = 0; n < count; ++n)
    for (std::size_t d = 0; d < directions; ++d)
      for (std::size_t i = 0; i < size; ++i) inputs[n * size + i] += weights[n * directions + d] * basis[d * size + i];
  return inputs;
}

// The sums of x xᵀ, block by block.
ProductInputs sums_of(const std::vector<float>& inputs, std::size_t size) {
  ProductInputs sums;
  for (std::size_t first = 0; first < size; first += ProductInputs::block) {
    const std::size_t width = std::min<std::size_t>(ProductInputs::block, size - first);
    std::vector<float>& block = sums.sums.emplace_back(width * width);
    for (std::size_t at = first; at < inputs.size(); at += size)
      for (std::size_t i = 0; i < width; ++i)
        for (std::size_t j = 0; j < width; ++j) block[i * width + j] += inputs[at + i] * inputs[at + j];
  }
  return sums;
}

// The squared error of the products with all inputs.
double product_error(const Quantised& quantised, const std::vector<float>& values, const std::vector<float>& inputs) {
  const auto size = static_cast<std::size_t>(quantised.weight.shape().back());
  std::vector<double> errors(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    errors[i] = value_at(quantised, static_cast<std::int64_t>(i)) - static_cast<double>(values[i]);
  double sum = 0;
  for (std::size_t x = 0; x < inputs.size(); x += size)
    for (std::size_t row = 0; row < values.size(); row += size) {
      double error = 0;
      for (std::size_t i = 0; i < size; ++i) error += static_cast<double>(inputs[x + i]) * errors[row + i];
      sum += error * error;
    }
  return sum;
}

// On inputs that it has not seen, too.
TEST(Quantise, KeepsProductsWithKnownInputsClose) {
  constexpr std::size_t size = 256, rows = 24;
  const auto values = normal_values(rows * size), inputs = correlated_inputs(600, size);
  const std::vector<float> seen(inputs.begin(), inputs.begin() + 400 * size),
      others(inputs.begin() + 400 * size, inputs.end());
  const ProductInputs sums = sums_of(seen, size);
  for (const DType dtype : {DType::i8, DType::i4}) {
    const Quantised plain = quantise(values, rows, size, dtype);
    Quantised careful({rows, size}, dtype);
    quantise_rows(values, 0, careful, &sums);
    EXPECT_LT(product_error(careful, values, others), 0.3 * product_error(plain, values, others)) << name(dtype);
  }
}

TEST(Quantise, TakesKnownInputsInBlocks) {
  constexpr std::size_t size = ProductInputs::block + 64;
  const auto values = normal_values(2 * size), inputs = correlated_inputs(30, size);
  const ProductInputs sums = sums_of(inputs, size);
  ASSERT_EQ(sums.sums.size(), 2);
  Quantised careful({2, size}, DType::i4);
  quantise_rows(values, 0, careful, &sums);
  EXPECT_LT(product_error(careful, values, inputs),
            0.5 * product_error(quantise(values, 2, size, DType::i4), values, inputs));
  const ProductInputs too_few{{sums.sums[0]}};
  test::expect_error<UsageError>([&] { quantise_rows(values, 0, careful, &too_few); }, "do not fit its weight");
}

TEST(Quantise, KeepsValuesThatFitExactly) {
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
