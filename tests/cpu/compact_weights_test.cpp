#include "backend/cpu/compact_weights.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/float16.h>
#include <jerboa/base/random.h>

#include "backend/cpu/matmul.h"
#include "base/simd_targets.h"
// After simd_targets.h:
#include <hwy/targets.h>

// 16-bit, int8 and int4 weights: expanded, and as the right-hand side of products.
namespace jerboa::cpu {
namespace {

struct Stored {
  DType dtype;
  std::int64_t rows, columns;
  std::vector<std::byte> bytes;
  std::vector<std::uint16_t> scales;
  std::vector<float> values;             // what they represent
  std::vector<std::uint16_t> mins = {};  // of quantised ones; empty: none

  CompactWeights weights() const {
    const auto* least = mins.empty() ? nullptr : reinterpret_cast<const std::byte*>(mins.data());
    return {dtype, bytes.data(), reinterpret_cast<const std::byte*>(scales.data()), DType::f16, columns, least};
  }
  bool is_quantised() const { return !scales.empty(); }
  void add_mins() {
    SplitMix random(9);
    for (std::size_t i = 0; i < scales.size(); ++i)
      mins.push_back(f32_to_f16(static_cast<float>(random.uniform() - 0.5)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += f16_to_f32(mins[i / weight_group]);
  }
};

// Random weights [rows, columns] of a type.
Stored random_weights(DType dtype, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(rows * columns);
  Stored stored{dtype, rows, columns, std::vector<std::byte>(count * static_cast<std::size_t>(bits(dtype)) / 8),
                {},    {}};
  stored.values.resize(count);
  SplitMix random(seed);
  if (dtype == DType::i8 || dtype == DType::i4)
    for (std::size_t i = 0; i < count / weight_group; ++i)
      stored.scales.push_back(f32_to_f16(static_cast<float>(random.uniform() * 0.1)));
  auto* narrow = reinterpret_cast<std::uint16_t*>(stored.bytes.data());
  auto* bytes = reinterpret_cast<std::uint8_t*>(stored.bytes.data());
  for (std::size_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<float>(random.uniform() - 0.5);
    if (dtype == DType::f16) {
      narrow[i] = f32_to_f16(drawn);
      stored.values[i] = f16_to_f32(narrow[i]);
    } else if (dtype == DType::bf16) {
      narrow[i] = f32_to_bf16(drawn);
      stored.values[i] = bf16_to_f32(narrow[i]);
    } else {
      const float scale = f16_to_f32(stored.scales[i / weight_group]);
      if (dtype == DType::i8) {
        const auto value = static_cast<std::int8_t>(static_cast<int>(random.below(255)) - 127);
        std::memcpy(bytes + i, &value, 1);
        stored.values[i] = static_cast<float>(value) * scale;
      } else {
        const auto value = static_cast<unsigned>(random.below(16));
        const std::size_t in_group = i % weight_group;
        bytes[i / weight_group * 16 + in_group % 16] |= static_cast<std::uint8_t>(value << (in_group < 16 ? 0 : 4));
        stored.values[i] = static_cast<float>(static_cast<int>(value) - 8) * scale;
      }
    }
  }
  return stored;
}

class WeightTypes : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, WeightTypes, ::testing::Values(DType::f16, DType::bf16, DType::i8, DType::i4),
                         [](const auto& param) { return std::string(name(param.param)); });

TEST_P(WeightTypes, AreExpandedExactly) {
  const Stored stored = random_weights(GetParam(), 5, 96, 1);
  for (std::int64_t row = 0; row < stored.rows; ++row)
    for (const std::int64_t first : {0, 32, 64}) {
      std::vector<float> values(32);
      expand_weights(stored.weights(), row, first, 32, values.data());
      for (std::int64_t i = 0; i < 32; ++i)
        ASSERT_EQ(values[static_cast<std::size_t>(i)],
                  stored.values[static_cast<std::size_t>(row * stored.columns + first + i)])
            << row << ", " << first + i;
    }
}

TEST_P(WeightTypes, AreExpandedWithTheirMinimums) {
  Stored stored = random_weights(GetParam(), 3, 1056, 4);
  if (!stored.is_quantised()) return;
  stored.add_mins();
  std::vector<float> values(1056);
  for (std::int64_t row = 0; row < stored.rows; ++row) {
    expand_weights(stored.weights(), row, 0, 1056, values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], stored.values[static_cast<std::size_t>(row) * 1056 + i], 1e-6) << row << ", " << i;
  }
}

TEST_P(WeightTypes, MultiplyAsWhatTheyStandFor) {
  struct Sizes {
    std::int64_t rows, inner, columns;
  };
  for (const Sizes& size :
       {Sizes{1, 64, 5}, {1, 1056, 300}, {1, 1056, 301}, {3, 512, 33}, {12, 96, 100}, {40, 800, 70}, {200, 416, 290}}) {
    Stored stored = random_weights(GetParam(), size.columns, size.inner, 2);
    if (stored.is_quantised() && size.columns % 2 == 1) stored.add_mins();
    std::vector<float> a(static_cast<std::size_t>(size.rows * size.inner));
    SplitMix random(3);
    for (float& value : a) value = static_cast<float>(random.uniform() - 0.5);
    std::vector<float> c(static_cast<std::size_t>(size.rows * size.columns), 1e9F);
    const CompactWeights weights = stored.weights();
    Matmul product;
    product.rows = size.rows, product.columns = size.columns, product.inner = size.inner;
    product.a = a.data(), product.a_row = size.inner, product.a_inner = 1;
    product.weights = &weights;
    product.c = c.data(), product.c_row = size.columns;
    ThreadPool pool(2);
    run_matmul(product, pool);
    for (std::int64_t i = 0; i < size.rows; ++i)
      for (std::int64_t j = 0; j < size.columns; ++j) {
        double wanted = 0, magnitude = 0;
        for (std::int64_t k = 0; k < size.inner; ++k) {
          const double term = static_cast<double>(a[static_cast<std::size_t>(i * size.inner + k)]) *
                              stored.values[static_cast<std::size_t>(j * size.inner + k)];
          wanted += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(c[static_cast<std::size_t>(i * size.columns + j)], wanted, 1e-6 * magnitude + 1e-7)
            << i << ", " << j << " of " << size.rows << "x" << size.inner << "x" << size.columns;
      }
  }
}

// Each group of 32 values as the integers and the scale that stand for it.
std::vector<double> rounded(const std::vector<float>& a) {
  std::vector<double> values(a.begin(), a.end());
  for (std::size_t group = 0; group < a.size(); group += weight_group) {
    float most = 0;
    for (std::size_t i = group; i < group + weight_group; ++i) most = std::max(most, std::abs(a[i]));
    for (std::size_t i = group; i < group + weight_group; ++i)
      values[i] = most > 0 ? std::nearbyint(a[i] * (127 / most)) * (most / 127) : 0;
  }
  return values;
}

std::vector<float> integer_product(std::int64_t rows, const std::vector<float>& a, const Stored& stored) {
  std::vector<float> c(static_cast<std::size_t>(rows * stored.rows), 1e9F);
  const CompactWeights weights = stored.weights();
  Matmul product;
  product.rows = rows, product.columns = stored.rows, product.inner = stored.columns;
  product.a = a.data(), product.a_row = stored.columns, product.a_inner = 1;
  product.weights = &weights;
  product.integer_products = true;
  product.c = c.data(), product.c_row = stored.rows;
  ThreadPool pool(2);
  run_matmul(product, pool);
  return c;
}

class IntegerProducts : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, IntegerProducts, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& param) { return std::string(hwy::TargetName(param.param)); });

bool has_panels(std::int64_t target) {
#if HWY_ARCH_X86
  return target == HWY_AVX3 && __builtin_cpu_supports("avx512vnni");
#else
  return target != target;
#endif
}

TEST_P(IntegerProducts, AreThoseOfRoundedRows) {
  for (const DType dtype : {DType::i8, DType::i4})
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 53, 200})
      for (const std::int64_t inner : {32, 544, 1056}) {
        // SCALAR has no vectors of integers, and many rows are only rounded where that is faster.
        const bool rounds = GetParam() != HWY_SCALAR && (rows <= 8 || has_panels(GetParam()));
        Stored stored = random_weights(dtype, 37, inner, 5);
        if (rows % 2 == 1) stored.add_mins();
        std::vector<float> a(static_cast<std::size_t>(rows * inner));
        SplitMix random(6);
        for (float& value : a) value = static_cast<float>(random.uniform() - 0.5);
        std::fill_n(a.begin(), weight_group, 0.0F);
        const auto c = integer_product(rows, a, stored);
        const auto integers = rounded(a);
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < stored.rows; ++j) {
            double wanted = 0, magnitude = 0;
            for (std::int64_t k = 0; k < inner; ++k) {
              const auto at = static_cast<std::size_t>(i * inner + k), w = static_cast<std::size_t>(j * inner + k);
              const double least = stored.mins.empty() ? 0 : f16_to_f32(stored.mins[w / weight_group]);
              const double value = rounds ? integers[at] : a[at];
              wanted += value * (stored.values[w] - least) + a[at] * least;  // minimums meet the row as it was
              magnitude += std::abs(a[at] * stored.values[w]) + std::abs(a[at] * least);
            }
            ASSERT_NEAR(c[static_cast<std::size_t>(i * stored.rows + j)], wanted, 1e-5 * magnitude)
                << i << ", " << j << " of " << rows << "x" << inner << " " << name(dtype);
          }
      }
}

TEST_P(IntegerProducts, PassNanAndInfinityOn) {
  for (const float special : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Stored stored = random_weights(DType::i8, 9, 96, 5);
    std::vector<float> a(2 * 96, 0.5F);
    a[96 + 40] = special;
    const auto c = integer_product(2, a, stored);
    for (std::size_t j = 0; j < 9; ++j) {
      EXPECT_TRUE(std::isfinite(c[j])) << j;
      EXPECT_FALSE(std::isfinite(c[9 + j])) << j;
    }
  }
}

}  // namespace
}  // namespace jerboa::cpu
