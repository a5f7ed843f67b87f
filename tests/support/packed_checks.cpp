#include "support/packed_checks.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include <jerboa/base/float16.h>
#include <jerboa/ir/packed_cache.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>

namespace jerboa::test {
namespace {

constexpr std::int64_t rows = 48;

// Normal numbers, larger from row to row; the first row is zeros, and so is a group of the second.
HostTensor features(std::int64_t size, DType dtype) {
  HostTensor values(dtype, {1, 1, rows, size});
  std::mt19937 random(static_cast<unsigned>(size));
  for (std::int64_t i = size; i < rows * size; ++i) {
    const double power =
        dtype == DType::f16 ? static_cast<double>(i / size % 20) - 10 : static_cast<double>(i / size) - 24;
    values.set_number(i, std::normal_distribution()(random) * std::exp2(power));
  }
  for (std::int64_t i = size; i < size + std::min(size, features_per_scale); ++i) values.set_number(i, 0);
  return values;
}

// Compares a group with its stored form.
void expect_nearest(const std::vector<double>& values, const std::vector<int>& bytes, double scale) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  EXPECT_NEAR(scale, largest / largest_packed, largest / largest_packed * 0x1.01p-8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(bytes[i]), largest_packed);
    EXPECT_NEAR(bytes[i] * scale, values[i], scale * 0.5001) << "the nearest of " << values[i];
  }
}

}  // namespace

void expect_nearest_rows(const Device& device) {
  for (const std::int64_t size : {4, 32, 36, 80, 128})
    for (const DType dtype : {DType::f32, DType::f16}) {
      SCOPED_TRACE(testing::Message() << size << " features of " << name(dtype));
      const HostTensor values = features(size, dtype);
      Session session(device);
      session.add_entry("append", trace([&] {
                          const Tensor cache = tensor_input("cache", {1, 1, rows, packed_words(size)}, packed_cache);
                          const Tensor from = tensor_input("values", {1, 1, rows, size}, dtype);
                          const Tensor positions = reshape(arange(rows), {1, rows});
                          output("rows", cache_append(cache, from, positions));
                        }));
      const HostTensor empty(packed_cache, {1, 1, rows, packed_words(size)});
      const HostTensor stored = session.run("append", {{"cache", empty}, {"values", values}}).get("rows");
      const auto word = [&](std::int64_t row, std::int64_t i) {
        return static_cast<std::uint32_t>(stored.number(row * packed_words(size) + i));
      };
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t first = 0; first < size; first += features_per_scale) {
          const std::int64_t group = first / features_per_scale;
          const auto bits = static_cast<std::uint16_t>(word(row, size / 4 + group / 2) >> (group % 2 * 16));
          std::vector<double> some;
          std::vector<int> bytes;
          for (std::int64_t i = first; i < std::min(first + features_per_scale, size); ++i) {
            some.push_back(values.number(row * size + i));
            bytes.push_back(static_cast<std::int8_t>(word(row, i / 4) >> (i % 4 * 8)));
          }
          expect_nearest(some, bytes, bf16_to_f32(bits));
        }
    }
}

}  // namespace jerboa::test
