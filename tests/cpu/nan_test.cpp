#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>

#include "cpu/ieee.h"
#include "cpu/oracle.h"

// NaN and infinity in reductions, sorts, softmax, norms, the loss, products and attention: the reference and the CPU
// engine on each instruction set, fused and not.
namespace jerboa::test {
namespace {

using Xs = const std::vector<Tensor>&;
using Numbers = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Numbers random_numbers(std::int64_t count, std::uint32_t seed) {
  const auto floats = normal_floats(count, seed);
  return {floats.begin(), floats.end()};
}

Numbers with(Numbers numbers, std::size_t at, double value) {
  numbers[at] = value;
  return numbers;
}

// A width with only a tail, one with full vectors and a tail, and one of several tiles.
constexpr std::int64_t widths[] = {3, 37, 1100};

// Rows with special values at different positions: none, one of each, and all of them minus infinity.
std::vector<Numbers> special_rows(std::int64_t width) {
  const auto last = static_cast<std::size_t>(width - 1);
  const Numbers plain = random_numbers(width, 5);
  std::vector<Numbers> rows{plain, Numbers(plain.size(), -infinity), Numbers(plain.size(), infinity)};
  for (const double special : {nan, infinity, -infinity})
    for (const std::size_t at : {std::size_t{0}, last / 2, last}) rows.push_back(with(plain, at, special));
  rows.push_back(with(with(plain, 0, nan), last, infinity));
  rows.push_back(with(with(plain, 0, -infinity), last, nan));
  return rows;
}

Numbers joined(const std::vector<Numbers>& rows) {
  Numbers all;
  for (const Numbers& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

Numbers transposed(const Numbers& matrix, std::int64_t rows, std::int64_t columns) {
  Numbers result;
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) result.push_back(matrix[static_cast<std::size_t>(i * columns + j)]);
  return result;
}

double sum_of(const Numbers& row) {
  double total = 0;
  for (const double x : row) total += x;
  return total;
}
bool has_nan(const Numbers& row) {
  return std::any_of(row.begin(), row.end(), [](double x) { return std::isnan(x); });
}
double max_of(const Numbers& row) { return has_nan(row) ? nan : *std::max_element(row.begin(), row.end()); }
double min_of(const Numbers& row) { return has_nan(row) ? nan : *std::min_element(row.begin(), row.end()); }
double argmax_of(const Numbers& row) {
  const auto found = std::find_if(row.begin(), row.end(), [](double x) { return std::isnan(x); });
  return static_cast<double>((found != row.end() ? found : std::max_element(row.begin(), row.end())) - row.begin());
}
double finite_of(const Numbers& row) {
  return std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); }) ? 1 : 0;
}

// A reduction along rows, along columns and over everything, of loaded and of computed values.
void expect_reduction(double (*wanted)(const Numbers&), const std::function<Tensor(const Tensor&, Axes)>& reduce) {
  for (const std::int64_t width : widths) {
    const auto rows = special_rows(width);
    const auto count = static_cast<std::int64_t>(rows.size());
    const Numbers matrix = joined(rows);
    Numbers results;
    for (const Numbers& row : rows) results.push_back(wanted(row));
    const double tolerance = 1e-4 * std::sqrt(static_cast<double>(width));
    expect_everywhere(sample_with({floats_of({count, width}, matrix)}, [&](Xs x) { return reduce(x[0], {1}); }),
                      results, 0, tolerance);
    expect_everywhere(
        sample_with({floats_of({count, width}, matrix)}, [&](Xs x) { return reduce(neg(neg(x[0])), {1}); }), results, 0,
        tolerance);
    expect_everywhere(sample_with({floats_of({width, count}, transposed(matrix, count, width))},
                                  [&](Xs x) { return reduce(x[0], {0}); }),
                      results, 0, tolerance);
    for (const Numbers& row : rows)
      expect_everywhere(sample_with({floats_of({width}, row)}, [&](Xs x) { return reduce(x[0], {0}); }), {wanted(row)},
                        0, tolerance);
  }
}

TEST(Nan, ComesThroughReductions) {
  expect_reduction(sum_of, [](const Tensor& x, const Axes& axes) { return sum(x, axes); });
  expect_reduction(max_of, [](const Tensor& x, const Axes& axes) { return max(x, axes); });
  expect_reduction(min_of, [](const Tensor& x, const Axes& axes) { return min(x, axes); });
  expect_reduction(argmax_of, [](const Tensor& x, const Axes& axes) { return argmax(x, axes[0]); });
  expect_reduction([](const Numbers& row) { return sum_of(row) / static_cast<double>(row.size()); },
                   [](const Tensor& x, const Axes& axes) { return mean(x, axes); });
}

TEST(Nan, IsNotFinite) {
  for (const std::int64_t width : widths)
    for (const Numbers& row : special_rows(width))
      expect_everywhere(sample_with({floats_of({width}, row)}, [](Xs x) { return all_finite(x[0]); }),
                        {finite_of(row)});
}

TEST(Nan, ComesThroughSumsOfSquaresAndRunningSums) {
  for (const std::int64_t width : widths)
    for (const Numbers& row : special_rows(width)) {
      double squares = 0, total = 0;
      Numbers running;
      for (const double x : row) {
        squares += x * x;
        running.push_back(total += x);
      }
      expect_everywhere(sample_with({floats_of({width}, row)}, [](Xs x) { return sum_squares({x[0]}); }), {squares},
                        1e-4, 0);
      expect_everywhere(sample_with({floats_of({width}, row)}, [](Xs x) { return cumsum(x[0]); }), running, 1e-4, 1e-3);
    }
}

// NaN is the largest value, and NaNs are equal: the first comes first.
TEST(Nan, SortsAboveInfinity) {
  const Numbers x{1, nan, infinity, -infinity, -nan, 0, -0.0, -3};
  const Value values = floats_of({8}, x);
  expect_everywhere(sample_with({values}, [](Xs in) { return argsort(in[0]); }), {3, 7, 5, 6, 0, 2, 1, 4});
  expect_everywhere(sample_with({values}, [](Xs in) { return argsort(in[0], -1, true); }), {1, 4, 2, 0, 5, 6, 7, 3});
  expect_everywhere(sample_with({values}, [](Xs in) { return top_k(in[0], 4).indices; }), {1, 4, 2, 0});
  expect_everywhere(sample_with({values}, [](Xs in) { return top_k(in[0], 4).values; }), {nan, nan, infinity, 1});
  expect_everywhere(sample_with({values}, [](Xs in) { return argmax(in[0]); }), {1});
}

struct Softmax {
  Numbers probabilities, logarithms;
  double normalizer;
};

Softmax softmax_of(const Numbers& row) {
  const double top = max_of(row);
  double total = 0;
  for (const double x : row) total += std::exp(x - top);
  Softmax result{{}, {}, top + std::log(total)};
  for (const double x : row) {
    result.probabilities.push_back(std::exp(x - top) / total);
    result.logarithms.push_back(x - top - std::log(total));
  }
  return result;
}

TEST(Nan, ComesThroughSoftmax) {
  for (const std::int64_t width : widths) {
    const auto rows = special_rows(width);
    const Value x = floats_of({static_cast<std::int64_t>(rows.size()), width}, joined(rows));
    Numbers probabilities, logarithms;
    for (const Numbers& row : rows) {
      const Softmax wanted = softmax_of(row);
      probabilities.insert(probabilities.end(), wanted.probabilities.begin(), wanted.probabilities.end());
      logarithms.insert(logarithms.end(), wanted.logarithms.begin(), wanted.logarithms.end());
    }
    expect_everywhere(sample_with({x}, [](Xs in) { return softmax(in[0]); }), probabilities);
    expect_everywhere(sample_with({x}, [](Xs in) { return log_softmax(in[0]); }), logarithms);
  }
}

TEST(Nan, InARowOfSoftmaxDecidesTheRow) {
  expect_everywhere(
      sample_with({floats_of({4, 3}, {1, nan, 2, 1, infinity, 2, 1, -infinity, 1, -infinity, -infinity, -infinity})},
                  [](Xs in) { return softmax(in[0]); }),
      {nan, nan, nan, nan, nan, nan, 0.5, 0, 0.5, nan, nan, nan});
}

TEST(Nan, ComesThroughNorms) {
  for (const std::int64_t width : widths) {
    const auto rows = special_rows(width);
    Numbers layer, rms;
    for (const Numbers& row : rows) {
      const double count = static_cast<double>(width), mean = sum_of(row) / count;
      double variance = 0, square = 0;
      for (const double x : row) {
        variance += (x - mean) * (x - mean) / count;
        square += x * x / count;
      }
      for (const double x : row) {
        layer.push_back((x - mean) / std::sqrt(variance + 1e-5));
        rms.push_back(x * (1 / std::sqrt(square + 1e-6)));
      }
    }
    const Value x = floats_of({static_cast<std::int64_t>(rows.size()), width}, joined(rows));
    expect_everywhere(sample_with({x}, [](Xs in) { return layer_norm(in[0]); }), layer, 1e-4, 1e-5);
    expect_everywhere(sample_with({x}, [](Xs in) { return rms_norm(in[0]); }), rms, 1e-4, 1e-5);
  }
}

TEST(Nan, ComesThroughTheLoss) {
  for (const std::int64_t width : widths)
    for (const double smoothing : {0.0, 0.1}) {
      const auto rows = special_rows(width);
      const auto count = static_cast<std::int64_t>(rows.size());
      Numbers losses, targets;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t target = i % 3 == 0 ? 0 : rows[i].size() - 1;
        targets.push_back(static_cast<double>(target));
        const Numbers logarithms = softmax_of(rows[i]).logarithms;
        const double spread = -sum_of(logarithms) / static_cast<double>(width);
        losses.push_back(smoothing == 0 ? -logarithms[target]
                                        : -(1 - smoothing) * logarithms[target] + smoothing * spread);
      }
      const Value logits = floats_of({count, width}, joined(rows));
      expect_everywhere(sample_with({logits, {DType::i32, {count}, targets}},
                                    [&](Xs x) { return cross_entropy(x[0], x[1], {.label_smoothing = smoothing}); }),
                        losses, 1e-4, 1e-4);
    }
}

// A position that is excluded from the loss excludes its NaN too.
TEST(Nan, StaysOutOfALossThatIgnoresIt) {
  expect_everywhere(sample_with({floats_of({2, 2}, {nan, 1, 0, 0}), {DType::i32, {2}, {-1, 1}}},
                                [](Xs x) { return cross_entropy(x[0], x[1]); }),
                    {0, std::log(2.0)});
}

TEST(Nan, InTheDataReachesTheLoss) {
  const std::int64_t batch = 9, width = 20, classes = 11;
  const Numbers x = with(random_numbers(batch * width, 1), 57, nan);
  Numbers targets(static_cast<std::size_t>(batch), 3);
  const Sample sample =
      sample_with({floats_of({batch, width}, x),
                   floats_of({33, width}, random_numbers(33 * width, 2)),
                   floats_of({classes, 33}, random_numbers(classes * 33, 3)),
                   {DType::i32, {batch}, targets}},
                  [](Xs in) {
                    const Tensor hidden = relu(layer_norm(matmul(in[0], in[1], {.transpose_b = true})));
                    return mean(cross_entropy(matmul(gelu(hidden), in[2], {.transpose_b = true}), in[3]));
                  });
  expect_everywhere(sample, {nan});
}

Numbers product_of(const Numbers& a, const Numbers& b, std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  Numbers c(static_cast<std::size_t>(rows * columns), 0);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = 0; k < inner; ++k)
        c[static_cast<std::size_t>(i * columns + j)] +=
            a[static_cast<std::size_t>(i * inner + k)] * b[static_cast<std::size_t>(k * columns + j)];
  return c;
}

// NaN in either operand, and an infinity that meets zeros; the special values are at the ends and in the middle.
struct Factors {
  Numbers a, b;
};
std::vector<Factors> special_factors(std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  const Numbers a = random_numbers(rows * inner, 7), b = random_numbers(inner * columns, 8);
  std::vector<Factors> list;
  for (const auto& [i, k, j] : std::vector<std::array<std::int64_t, 3>>{
           {0, 0, 0}, {rows / 2, inner / 2, columns / 2}, {rows - 1, inner - 1, columns - 1}}) {
    const auto in_a = static_cast<std::size_t>(i * inner + k), in_b = static_cast<std::size_t>(k * columns + j);
    list.push_back({with(a, in_a, nan), b});
    list.push_back({a, with(b, in_b, nan)});
    list.push_back({with(a, in_a, 0), with(b, in_b, infinity)});
    list.push_back({with(a, in_a, -infinity), with(b, in_b, 0)});
  }
  return list;
}

// Sizes for each form of the product: blocks, few rows, one row, one column, and inner sizes with and without tails.
const std::vector<std::array<std::int64_t, 3>> product_sizes{{65, 70, 67}, {128, 64, 96}, {3, 65, 50}, {1, 33, 40},
                                                             {1, 64, 64},  {17, 40, 1},   {8, 300, 19}};

TEST(Nan, ComesThroughProducts) {
  for (const auto& [rows, inner, columns] : product_sizes)
    for (const Factors& factors : special_factors(rows, inner, columns)) {
      const Numbers wanted = product_of(factors.a, factors.b, rows, inner, columns);
      const Value a = floats_of({rows, inner}, factors.a), b = floats_of({inner, columns}, factors.b);
      const Value turned = floats_of({columns, inner}, transposed(factors.b, inner, columns));
      expect_everywhere(sample_with({a, b}, [](Xs x) { return matmul(x[0], x[1]); }), wanted, 1e-4, 1e-3);
      expect_everywhere(sample_with({a, turned}, [](Xs x) { return matmul(x[0], x[1], {.transpose_b = true}); }),
                        wanted, 1e-4, 1e-3);
      expect_everywhere(sample_with({floats_of({inner, rows}, transposed(factors.a, rows, inner)), b},
                                    [](Xs x) { return matmul(x[0], x[1], {.transpose_a = true}); }),
                        wanted, 1e-4, 1e-3);
    }
}

TEST(Nan, ComesThroughProductsWithCompactWeights) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const auto& [rows, inner, columns] : product_sizes)
      for (Factors& factors : special_factors(rows, inner, columns)) {
        Value weights = to_value(to_host({dtype, {columns, inner}, transposed(factors.b, inner, columns)}));
        const Numbers wanted = product_of(factors.a, transposed(weights.data, columns, inner), rows, inner, columns);
        expect_everywhere(sample_with({floats_of({rows, inner}, factors.a), weights},
                                      [](Xs x) { return matmul(x[0], cast(x[1], DType::f32), {.transpose_b = true}); }),
                          wanted, 1e-4, 1e-3);
      }
}

TEST(Nan, ComesThroughProductsWithQuantisedWeights) {
  constexpr std::int64_t columns = 24, inner = 96, groups = inner / 32;
  for (const DType dtype : {DType::i8, DType::i4})
    for (const std::int64_t rows : {1, 3, 40}) {
      Numbers weights;
      for (std::int64_t i = 0; i < columns * inner; ++i) weights.push_back(static_cast<double>(i * 7 % 15 - 7));
      const Numbers x = random_numbers(rows * inner, 4);
      const Numbers scales(static_cast<std::size_t>(columns * groups), 0.25);
      const auto check = [&](const Numbers& x_values, const Numbers& scale_values) {
        expect_like_the_reference(sample_with({floats_of({rows, inner}, x_values),
                                               {dtype, {columns, inner}, weights},
                                               to_value(to_host({DType::f16, {columns, groups}, scale_values}))},
                                              [](Xs in) { return matmul_quantised(in[0], in[1], in[2]); }),
                                  1e-4, 1e-3);
      };
      check(with(x, static_cast<std::size_t>(inner / 2), nan), scales);
      check(with(x, x.size() - 1, infinity), scales);
      check(x, with(scales, 5, nan));
    }
}

TEST(Nan, ComesThroughGroupedProductsAndConvolutions) {
  const Numbers x = with(random_numbers(12 * 20, 1), 45, nan);
  expect_like_the_reference(sample_with({floats_of({12, 20}, x),
                                         floats_of({3, 20, 9}, random_numbers(3 * 20 * 9, 2)),
                                         {DType::i32, {4}, {0, 3, 3, 12}}},
                                        [](Xs in) { return matmul_grouped(in[0], in[1], in[2]); }),
                            1e-4, 1e-3);
  const Numbers image = with(random_numbers(2 * 3 * 9 * 9, 3), 100, nan);
  const Value images = floats_of({2, 3, 9, 9}, image);
  expect_like_the_reference(sample_with({images, floats_of({4, 3, 3, 3}, random_numbers(4 * 27, 4))},
                                        [](Xs in) {
                                          return conv2d(in[0], in[1], {}, Conv2dAttrs{{1, 1}, {1, 1}});
                                        }),
                            1e-4, 1e-3);
  for (const double special : {nan, infinity, -infinity}) {
    const Value pooled = floats_of({1, 2, 8, 8}, with(random_numbers(128, 5), 37, special));
    const PoolAttrs windows{{3, 3}, {2, 2}, {1, 1}};
    expect_like_the_reference(sample_with({pooled}, [&](Xs in) { return max_pool2d(in[0], windows); }));
    expect_like_the_reference(sample_with({pooled}, [&](Xs in) { return avg_pool2d(in[0], windows); }));
  }
  expect_everywhere(sample_with({floats_of({1, 1, 2, 2}, Numbers(4, -infinity))},
                                [](Xs in) {
                                  return max_pool2d(in[0], PoolAttrs{{2, 2}, {2, 2}, {0, 0}});
                                }),
                    {-infinity});
}

// [batch, heads, time, size] by element.
std::size_t place(std::int64_t head, std::int64_t t, std::int64_t i, std::int64_t time, std::int64_t size) {
  return static_cast<std::size_t>((head * time + t) * size + i);
}

// In q, NaN reaches only that query; in k and v all queries that see the key. A masked key may still reach a query
// through v, by a weight of 0 times NaN: those elements are not checked.
void expect_attention_passes_nan(std::int64_t queries, std::int64_t keys, std::int64_t size, std::int64_t nan_at,
                                 char operand) {
  constexpr std::int64_t heads = 2;
  Numbers q = random_numbers(heads * queries * size, 1), k = random_numbers(heads * keys * size, 2),
          v = random_numbers(heads * keys * size, 3);
  const std::int64_t shift = keys - queries;  // the first query sees this many keys before the diagonal
  if (operand == 'q') q[place(1, nan_at, size - 1, queries, size)] = nan;
  if (operand == 'k') k[place(1, nan_at, 0, keys, size)] = nan;
  if (operand == 'v') v[place(1, nan_at, 0, keys, size)] = nan;
  const Sample sample = sample_with({floats_of({1, heads, queries, size}, q), floats_of({1, heads, keys, size}, k),
                                     floats_of({1, heads, keys, size}, v)},
                                    [](Xs x) { return attention(x[0], x[1], x[2], {.causal = true}); });
  const auto clean = [&] {
    Sample other = sample;
    for (auto& [name, value] : other.inputs)
      for (double& x : value.data) x = std::isnan(x) ? 0 : x;
    return other;
  }();
  for_each_engine(sample, [&](const Numbers& out, const std::string& engine) {
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t t = 0; t < queries; ++t)
        for (std::int64_t i = 0; i < size; ++i) {
          const double value = out[place(head, t, i, queries, size)];
          const bool sees = t + shift >= nan_at;
          const bool reached = head == 1 && (operand == 'q' ? t == nan_at : sees && (operand == 'k' || i == 0));
          const bool open = head == 1 && operand == 'v' && i == 0 && !sees;
          if (open) continue;
          EXPECT_EQ(std::isnan(value), reached)
              << fmt::format("{}: {} in {}, head {}, query {}, element {}", engine, nan_at, operand, head, t, i);
        }
  });
  expect_like_the_reference(clean);
}

TEST(Nan, ComesThroughAttention) {
  struct Sizes {
    std::int64_t queries, keys, size;
  };
  // A prompt, one query over many keys (which are split among tasks), and a head size that is not a multiple of 16.
  for (const auto& [queries, keys, size] : {Sizes{70, 70, 16}, Sizes{1, 1500, 32}, Sizes{5, 9, 7}})
    for (const char operand : {'q', 'k', 'v'})
      for (const std::int64_t at : {std::int64_t{0}, (operand == 'q' ? queries : keys) - 1})
        expect_attention_passes_nan(queries, keys, size, at, operand);
}

// As in softmax: a score of plus infinity makes the row NaN, one of minus infinity has no weight.
TEST(Infinity, InScoresOfAttention) {
  const Value q = floats_of({1, 1, 1, 1}, {1}), v = floats_of({1, 1, 3, 1}, {10, 20, 40});
  const auto attend = [](Xs x) { return attention(x[0], x[1], x[2]); };
  expect_everywhere(sample_with({q, floats_of({1, 1, 3, 1}, {0, infinity, 0}), v}, attend), {nan});
  expect_everywhere(sample_with({q, floats_of({1, 1, 3, 1}, {0, -infinity, 0}), v}, attend), {25});
  expect_everywhere(sample_with({q, floats_of({1, 1, 3, 1}, Numbers(3, -infinity)), v}, attend), {0});
}

TEST(Nan, ComesThroughTheGradientOfAttention) {
  for (const char operand : {'q', 'k', 'v', 'd'}) {
    constexpr std::int64_t time = 20, size = 8, count = time * size;
    std::vector<Value> operands;
    for (const char name : {'q', 'k', 'v', 'd'}) {
      const Numbers numbers = random_numbers(count, static_cast<std::uint32_t>(name));
      operands.push_back(floats_of({1, 1, time, size}, name == operand ? with(numbers, 3, nan) : numbers));
    }
    const auto gradient = [](Xs x, std::size_t which) {
      const auto forward = apply(Op::attention, {x[0], x[1], x[2], {}, {}, {}, {}}, AttentionAttrs{});
      return apply(Op::attention_grad, {x[0], x[1], x[2], forward[0], forward[1], x[3], {}, {}, {}, {}},
                   AttentionGradAttrs{})[which];
    };
    for (const std::size_t which : {0, 1, 2})
      for_each_engine(sample_with(operands, [&](Xs x) { return gradient(x, which); }),
                      [&](const Numbers& values, const std::string& engine) {
                        // The gradient of v does not depend on v itself.
                        if (which == 2 && operand == 'v') return;
                        EXPECT_TRUE(has_nan(values)) << engine << ": gradient " << which << ", NaN in " << operand;
                      });
  }
}

}  // namespace
}  // namespace jerboa::test
