#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/ir/rope.h>

#include "reference/evaluate.h"

// Which keys attention sees, and how rope rotates.
namespace jerboa::test {
namespace {

using Xs = const std::vector<Tensor>&;
using Numbers = std::vector<double>;

Numbers wave(std::size_t count, double step) {
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = std::sin(step * static_cast<double>(i + 1));
  return numbers;
}

void expect_near(const Numbers& a, const Numbers& b, double tolerance = 1e-6) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "at " << i;
}

// q, k and v of one head, [1, 1, time, 2]; the scores are all equal where q is 0.
Value heads(std::int64_t time, double step) {
  return floats({1, 1, time, 2}, wave(static_cast<std::size_t>(2 * time), step));
}
Value zeros_of(std::int64_t time) { return floats({1, 1, time, 2}, Numbers(static_cast<std::size_t>(2 * time), 0)); }

// With equal scores the probabilities show which keys are seen.
Numbers weights(std::int64_t time, std::int64_t keys, const AttentionOptions& options,
                const std::vector<Value>& rest = {}, const std::function<void(AttentionOptions&, Xs)>& attach = {}) {
  std::vector<Value> in{zeros_of(time), zeros_of(keys)};
  in.insert(in.end(), rest.begin(), rest.end());
  return evaluate_one(in, [&](Xs x) {
    AttentionOptions attention_options = options;
    if (attach) attach(attention_options, x);
    return attention_weights(x[0], x[1], attention_options);
  });
}

TEST(Attention, SeesTheKeysThatTheOptionsSay) {
  const double third = 1.0f / 3;
  expect_near(weights(2, 3, {}), {third, third, third, third, third, third});
  // Without positions the queries are the last ones.
  expect_near(weights(2, 3, {.causal = true}), {0.5, 0.5, 0, third, third, third});
  expect_near(weights(3, 3, {.causal = true, .window = 2}), {1, 0, 0, 0.5, 0.5, 0, 0, 0.5, 0.5});
  const auto with_lengths = [](AttentionOptions& options, Xs x) { options.lengths = x[2]; };
  expect_near(weights(1, 3, {}, {integers({2})}, with_lengths), {0.5, 0.5, 0});
  expect_near(weights(1, 3, {}, {integers({0})}, with_lengths), {0, 0, 0});
  const auto with_positions = [](AttentionOptions& options, Xs x) { options.positions = x[2]; };
  expect_near(weights(2, 3, {.causal = true}, {integers({1, 2}, {0, 1})}, with_positions), {1, 0, 0, 0.5, 0.5, 0});
  const auto with_mask = [](AttentionOptions& options, Xs x) { options.mask = x[2] > 0; };
  expect_near(weights(1, 3, {}, {floats({3}, {1, 0, 1})}, with_mask), {0.5, 0, 0.5});
  const auto with_scores = [](AttentionOptions& options, Xs x) { options.mask = x[2]; };
  expect_near(weights(1, 2, {}, {floats({2}, {0, std::log(3)})}, with_scores), {0.25, 0.75});
  const auto with_sinks = [](AttentionOptions& options, Xs x) { options.sinks = x[2]; };
  expect_near(weights(1, 2, {}, {floats({1}, {std::log(2)})}, with_sinks), {0.25, 0.25});
}

TEST(Attention, ARingHoldsTheLatestPositions) {
  const auto attach = [](AttentionOptions& options, Xs x) {
    options.lengths = x[2];
    options.positions = x[3];
  };
  // After 6 positions a ring of 4 holds 4 5 2 3.
  expect_near(weights(1, 4, {.causal = true, .ring = true}, {integers({6}), integers({1, 1}, {5})}, attach),
              {0.25, 0.25, 0.25, 0.25});
  expect_near(weights(1, 4, {.causal = true, .ring = true}, {integers({6}), integers({1, 1}, {3})}, attach),
              {0, 0, 0.5, 0.5});
  expect_near(
      weights(1, 4, {.causal = true, .window = 2, .ring = true}, {integers({6}), integers({1, 1}, {5})}, attach),
      {0.5, 0.5, 0, 0});
  // After 2 positions it holds them in the first slots, and the others are empty.
  expect_near(weights(1, 4, {.causal = true, .ring = true}, {integers({2}), integers({1, 1}, {1})}, attach),
              {0.5, 0.5, 0, 0});
}

TEST(Attention, GivesTheLogSumExpOfEachRow) {
  const auto result =
      evaluate_all({zeros_of(1), zeros_of(3), heads(3, 1), integers({1}), floats({1}, {std::log(5)})}, [](Xs x) {
        std::vector<Tensor> results;
        const auto lse = [&](Operand sinks, Operand lengths) {
          results.push_back(apply(Op::attention, {x[0], x[1], x[2], {}, sinks, lengths, {}}, AttentionAttrs{})[1]);
        };
        lse({}, {});
        lse(x[4], {});
        lse({}, x[3]);
        return results;
      });
  EXPECT_NEAR(result[0].data[0], std::log(3), 1e-6);
  EXPECT_NEAR(result[1].data[0], std::log(8), 1e-6);
  EXPECT_NEAR(result[2].data[0], 0, 1e-6);
}

TEST(Attention, ARowThatSeesNothingIsZeroAndFinite) {
  const auto result = evaluate_all({heads(2, 1), heads(2, 2), heads(2, 3), integers({0})}, [](Xs x) {
    return apply(Op::attention, {x[0], x[1], x[2], {}, {}, x[3], {}}, AttentionAttrs{});
  });
  EXPECT_EQ(result[0].data, Numbers(4, 0));
  for (const double lse : result[1].data) {
    EXPECT_LT(lse, -1e38);
    EXPECT_TRUE(std::isfinite(lse));
  }
}

TEST(Attention, IsItsWeightsTimesTheValues) {
  const Value q = floats({2, 4, 3, 2}, wave(48, 1.1)), k = floats({2, 2, 3, 2}, wave(24, 1.7)),
              v = floats({2, 2, 3, 5}, wave(60, 0.9));
  const auto both = evaluate_all({q, k, v}, [](Xs x) {
    const AttentionOptions options{.causal = true, .soft_cap = 0.8};
    const Tensor shared = reshape(broadcast_to(unsqueeze(x[2], {2}), {2, 2, 2, 3, 5}), {2, 4, 3, 5});
    return std::vector<Tensor>{attention(x[0], x[1], x[2], options),
                               matmul(attention_weights(x[0], x[1], options), shared)};
  });
  expect_near(both[0].data, both[1].data);
}

// Appending to a cache step by step gives the same as one pass over everything.
TEST(Attention, OverACacheEqualsOnePass) {
  const std::int64_t time = 5;
  const Value q = heads(time, 1.3), k = heads(time, 0.7), v = heads(time, 2.1);
  const auto whole =
      evaluate_one({q, k, v}, [](Xs x) { return attention(x[0], x[1], x[2], {.causal = true, .window = 3}); });
  for (const bool ring : {false, true}) {
    const std::int64_t capacity = ring ? 3 : 8;
    const auto stepwise = evaluate_one({q, k, v}, [&](Xs x) {
      Tensor keys = zeros({1, 1, capacity, 2}), values = keys;
      std::vector<Operand> outs;
      for (std::int64_t t = 0; t < time; ++t) {
        const Tensor position = full({1, 1}, static_cast<double>(t), DType::i32);
        const auto now = [&](const Tensor& all) { return slice(all, 2, t, t + 1); };
        keys = cache_append(keys, now(x[1]), position, {.ring = ring});
        values = cache_append(values, now(x[2]), position, {.ring = ring});
        outs.emplace_back(attention(now(x[0]), keys, values,
                                    {.causal = true,
                                     .window = 3,
                                     .ring = ring,
                                     .lengths = full({1}, static_cast<double>(t + 1), DType::i32),
                                     .positions = position}));
      }
      return concat(outs, 2);
    });
    expect_near(stepwise, whole);
  }
}

TEST(Rope, TurnsPairs) {
  const Value x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  const double c = std::cos(1), s = std::sin(1), d = std::cos(0.01), e = std::sin(0.01);
  expect_near(evaluate_one({x}, [](Xs in) { return rope(in[0]); }),
              {1, 2, 3, 4, c - 3 * s, 2 * d - 4 * e, 3 * c + s, 4 * d + 2 * e});
  expect_near(evaluate_one({x}, [](Xs in) { return rope(in[0], {}, {.interleaved = true}); }),
              {1, 2, 3, 4, c - 2 * s, 2 * c + s, 3 * d - 4 * e, 4 * d + 3 * e});
  expect_near(evaluate_one({x}, [](Xs in) { return rope(in[0], {}, {.dims = 2}); }),
              {1, 2, 3, 4, c - 2 * s, 2 * c + s, 3, 4});
  expect_near(evaluate_one({x}, [](Xs in) { return rope(rope(in[0]), {}, {.inverse = true}); }), x.data);
  const auto shifted = evaluate_one({x, integers({1, 2}, {1, 0})}, [](Xs in) { return rope(in[0], in[1]); });
  expect_near({shifted.begin() + 4, shifted.end()}, {1, 2, 3, 4});
}

// Frequencies as transformers' modeling_rope_utils computes them.
TEST(Rope, ScalesFrequencies) {
  expect_near(rope_table({.scaling = RopeScaling::linear, .factor = 4}, 4).frequencies, {0.25, 0.0025}, 1e-12);
  const RopeTable llama3 = rope_table({.scaling = RopeScaling::llama3, .factor = 8, .original_context = 8192}, 16);
  expect_near(llama3.frequencies,
              {1, 0.316227766017, 0.1, 0.0316227766017, 0.01, 0.00316227766017, 0.000213607544028, 3.95284707521e-05},
              1e-12);
  EXPECT_EQ(llama3.magnitude, 1);
  const RopeTable yarn = rope_table({.scaling = RopeScaling::yarn, .factor = 4, .original_context = 4096}, 16);
  expect_near(yarn.frequencies,
              {1, 0.316227766017, 0.1, 0.0256935059889, 0.00625, 0.00138349647632, 0.00025, 7.90569415042e-05}, 1e-12);
  EXPECT_NEAR(yarn.magnitude, 1.138629436111989, 1e-12);
  const RopeTable quiet =
      rope_table({.scaling = RopeScaling::yarn, .factor = 4, .attention_factor = 1, .original_context = 4096}, 16);
  EXPECT_EQ(quiet.magnitude, 1);
}

}  // namespace
}  // namespace jerboa::test
