#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "reference/evaluate.h"

// The recurrences that models write with linear_attention, causal_conv1d and cummax, against loops that follow the
// papers.
namespace jerboa::test::recurrent_test {
namespace {

using Xs = const std::vector<Tensor>&;
using Numbers = std::vector<double>;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Numbers waves(std::int64_t count, double frequency, double scale = 1) {
  Numbers numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(scale * std::sin(frequency * static_cast<double>(i + 1)));
  return numbers;
}

void expect_near(const Numbers& computed, const Numbers& wanted) {
  ASSERT_EQ(computed.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(computed[i], wanted[i], 1e-9) << i;
}

TEST(CumMax, KeepsNanAndTheFirstOfEqualValues) {
  const auto results = evaluate_all({floats({1, 3, 2, 3, nan, 9})}, [](Xs x) {
    const CumMax all = cummax(x[0]);
    return std::vector<Tensor>{all.values, all.indices};
  });
  EXPECT_EQ(Numbers(results[0].data.begin(), results[0].data.begin() + 4), (Numbers{1, 3, 3, 3}));
  EXPECT_TRUE(std::isnan(results[0].data[4]) && std::isnan(results[0].data[5]));
  EXPECT_EQ(results[1].data, (Numbers{0, 1, 1, 1, 4, 4}));
  EXPECT_EQ(evaluate_one({floats({5, 3, 5, 1})}, [](Xs x) { return cast(cummax(x[0], 0, true).indices, DType::f32); }),
            (Numbers{2, 2, 2, 3}));
}

TEST(CausalConv, ReadsTheStateWhereATokenHasNoneBeforeIt) {
  const auto state = floats({1, 2, 1}, {10, 20}), weight = floats({1, 3}, {100, 10, 1});
  const auto conv = [&](const Numbers& x, const Numbers& positions) {
    const auto length = static_cast<std::int64_t>(x.size());
    return evaluate_all({state, floats({1, length, 1}, x), weight, integers({1, length}, positions)}, [](Xs in) {
      const Recurrent result = causal_conv1d(in[1], in[2], {.state = in[0], .positions = in[3]});
      return std::vector<Tensor>{result.y, result.state};
    });
  };
  const auto plain = conv({1, 2, 3}, {5, 6, 7});
  EXPECT_EQ(plain[0].data, (Numbers{1201, 2012, 123}));
  EXPECT_EQ(plain[1].data, (Numbers{2, 3}));
  const auto padded = conv({7, 7, 1}, {-1, -1, 5});
  EXPECT_EQ(padded[0].data, (Numbers{0, 0, 1201}));
  EXPECT_EQ(padded[1].data, (Numbers{20, 1}));
  const auto fresh = conv({7, 1, 2}, {-1, 0, 1});
  EXPECT_EQ(fresh[0].data, (Numbers{0, 1, 12}));
  EXPECT_EQ(fresh[1].data, (Numbers{1, 2}));
}

// Mamba-2: h = exp(dt A) h + dt B ⊗ x and y = C h.
TEST(LinearAttention, IsAStateSpaceModel) {
  constexpr std::int64_t time = 6, size = 3, width = 2;
  const Numbers x = waves(time * width, 0.7), b = waves(time * size, 1.3), c = waves(time * size, 0.9);
  Numbers dt, wanted, h(size * width, 0);
  for (std::int64_t t = 0; t < time; ++t) dt.push_back(0.1 + 0.05 * static_cast<double>(t));
  constexpr double a = -0.8;
  for (std::int64_t t = 0; t < time; ++t)
    for (std::int64_t j = 0; j < width; ++j) {
      double y = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        double& state = h[i * width + j];
        state = std::exp(dt[t] * a) * state + dt[t] * b[t * size + i] * x[t * width + j];
        y += c[t * size + i] * state;
      }
      wanted.push_back(y);
    }
  const auto computed = evaluate_one(
      {floats({1, time, 1, size}, c), floats({1, time, 1, size}, b), floats({1, time, 1, width}, x),
       floats({1, time, 1}, dt)},
      [](Xs in) {
        const Tensor values = in[2] * unsqueeze(in[3], {3});
        return linear_attention(in[0], in[1], values, in[3] * a).y;
      },
      ReferencePrecision::f64);
  expect_near(computed, wanted);
}

// The gated delta rule: what the decayed memory holds for a key is replaced, by the share beta, by the value.
TEST(LinearAttention, ReplacesTheValueOfAKey) {
  const double decay = 0.5, beta = 0.25;
  const auto results = evaluate_all(
      {floats({1, 1, 2, 1}, {8, 40}), floats({1, 1, 1, 2}, {1, 0}), floats({1, 1, 1, 1}, {100}),
       floats({1, 1, 1}, {std::log(decay)}), floats({1, 1, 1}, {beta})},
      [](Xs in) {
        const Recurrent result = linear_attention(in[1], in[1], in[2], in[3], in[4], {.state = in[0]});
        return std::vector<Tensor>{result.y, result.state};
      },
      ReferencePrecision::f64);
  expect_near(results[0].data, {4 + beta * (100 - 4)});
  expect_near(results[1].data, {4 + beta * (100 - 4), 20});
}

// xLSTM's matrix memory with its stabiliser m, as transformers computes it step by step:
//   m' = max(log f + m, i), C' = exp(log f + m - m') C + exp(i - m') k ⊗ v, n' likewise with 1 for v,
//   h = q C' / (max(|q n'|, exp(-m')) + eps).
TEST(LinearAttention, IsAMatrixMemory) {
  constexpr std::int64_t time = 7, size = 3, width = 2;
  constexpr double eps = 1e-6;
  const Numbers q = waves(time * size, 0.7), k = waves(time * size, 1.3), v = waves(time * width, 0.9, 2);
  const Numbers inputs = waves(time, 2.1, 12), forgets = waves(time, 1.7, 4);
  Numbers c = waves(size * width, 0.4), n = waves(size, 0.5), wanted;
  double m = 0.3;
  const double first_m = m;
  Numbers memory;  // C, with n as its last column
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t j = 0; j < width; ++j) memory.push_back(c[i * width + j]);
    memory.push_back(n[i]);
  }
  for (std::int64_t t = 0; t < time; ++t) {
    const double log_forget = -std::log1p(std::exp(-forgets[t])), next = std::max(log_forget + m, inputs[t]);
    const double keep = std::exp(log_forget + m - next), take = std::exp(inputs[t] - next);
    double product = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      n[i] = keep * n[i] + take * k[t * size + i];
      product += q[t * size + i] * n[i];
    }
    for (std::int64_t j = 0; j < width; ++j) {
      double h = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        c[i * width + j] = keep * c[i * width + j] + take * k[t * size + i] * v[t * width + j];
        h += q[t * size + i] * c[i * width + j];
      }
      wanted.push_back(h / (std::max(std::abs(product), std::exp(-next)) + eps));
    }
    m = next;
  }
  const auto results = evaluate_all(
      {floats({1, time, 1, size}, q), floats({1, time, 1, size}, k), floats({1, time, 1, width}, v),
       floats({1, time, 1}, inputs), floats({1, time, 1}, forgets), floats({1, 1, size, width + 1}, memory),
       floats({1, 1, 1}, {first_m})},
      [](Xs in) {
        const Tensor log_forget = -softplus(-in[4]);
        const Tensor total = cumsum(log_forget, 1);
        const Tensor above = cummax(in[3] - total, 1).values;
        const Tensor top = total + maximum(above, in[6]);
        const Tensor before = concat({in[6], slice(top, 1, 0, time - 1)}, 1);
        const Tensor log_decay = log_forget + before - top;
        const Tensor keys = in[1] * unsqueeze(exp(in[3] - top), {3});
        const Tensor ones = zeros({1, time, 1, 1}) + 1;
        const Tensor values = concat({in[2], ones}, 3);
        const Recurrent result = linear_attention(in[0], keys, values, log_decay, {}, {.state = in[5]});
        const Tensor norm = abs(slice(result.y, 3, width, width + 1));
        const Tensor least = unsqueeze(exp(-top), {3});
        return std::vector<Tensor>{slice(result.y, 3, 0, width) / (maximum(norm, least) + eps), top};
      },
      ReferencePrecision::f64);
  expect_near(results[0].data, wanted);
  EXPECT_NEAR(results[1].data.back(), m, 1e-12);
}

}  // namespace
}  // namespace jerboa::test::recurrent_test
