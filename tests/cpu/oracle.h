#pragma once

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <jerboa/backend/reference.h>
#include <jerboa/ops/ops.h>

// Shared by tests of kernels: data, the reference evaluator for one op, and a comparison.
namespace jerboa::test {

inline std::int64_t count_of(const Sizes& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

inline std::vector<float> normal_floats(std::int64_t count, std::uint32_t seed, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

/// Integers in [low, high].
inline std::vector<std::int32_t> random_ints(std::int64_t count, std::uint32_t seed, int low, int high) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> distribution(low, high);
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::int32_t& value : values) value = distribution(generator);
  return values;
}

template <class T>
Value value_of(DType dtype, const Sizes& shape, const std::vector<T>& data) {
  return {dtype, shape, std::vector<double>(data.begin(), data.end())};
}

/// The outputs of one op in f64; an operand without a value is absent.
inline std::vector<Value> reference_of(Op op, const std::vector<std::optional<Value>>& operands, const Attrs& attrs) {
  std::vector<TensorId> keep;
  const Graph graph = trace([&] {
    std::vector<Operand> inputs;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i]) {
        inputs.emplace_back();
        continue;
      }
      inputs.emplace_back(tensor_input("in" + std::to_string(i), to_shape(operands[i]->shape), operands[i]->dtype));
    }
    for (const Tensor& result : apply(op, inputs, attrs)) keep.push_back(result.id());
  });
  const auto leaf = [&](const TensorInfo& info) { return *operands[std::stoul(info.name.substr(2))]; };
  return evaluate_reference(graph, keep, leaf, {}, ReferencePrecision::f64);
}

template <class T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, const std::string& what,
                  double relative = 1e-4, double absolute = 1e-5) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    ASSERT_TRUE(error <= absolute + relative * std::abs(expected[i]))
        << what << " at " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

/// The contents of results before a kernel runs: it must overwrite all of them.
inline constexpr float poison = 12345.678F;

}  // namespace jerboa::test
