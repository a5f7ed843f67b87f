#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>

#include "cpu/ieee.h"
#include "cpu/oracle.h"

// NaN and infinity in ops that carry a state from token to token: they reach the tokens that depend on them, and no
// others, although the CPU engine computes many tokens at a time.
namespace jerboa::test::recurrent_nan_test {
namespace {

using Xs = const std::vector<Tensor>&;
using Numbers = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double specials[] = {nan, infinity, -infinity};
constexpr std::int64_t times[] = {5, 9, 70};  // token by token, one chunk, several chunks

std::vector<std::int64_t> places(std::int64_t time) { return {0, time / 2, time - 1}; }

Numbers random_numbers(std::int64_t count, std::uint32_t seed, double scale = 1) {
  Numbers numbers;
  for (const float x : normal_floats(count, seed)) numbers.push_back(scale * x);
  return numbers;
}

// Elements are NaN where the reference's are. With an infinity an engine may add products in another order, so that NaN
// takes the place of an infinity; what is finite stays so, with the same value.
void expect_as_far_as_the_reference(const Sample& sample, bool with_infinity, const std::string& what) {
  Numbers wanted;
  for_each_engine(sample, [&](const Numbers& values, const std::string& engine) {
    if (wanted.empty()) wanted = values;  // of the reference, which comes first
    ASSERT_EQ(values.size(), wanted.size()) << engine;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool neither_is_finite = with_infinity && !std::isfinite(values[i]) && !std::isfinite(wanted[i]);
      EXPECT_TRUE(neither_is_finite || agrees(values[i], wanted[i], 1e-4, 1e-4))
          << fmt::format("{}, {}: element {} is {} instead of {}", engine, what, i, values[i], wanted[i]);
    }
  });
}

constexpr std::int64_t key_size = 8, value_size = 20;

// One head's operands of linear attention by their letters: s(tate), q, k, v, g (the log decay), b(eta), and the
// gradients n and y of the next state and of y.
Sizes shape_of(char name, std::int64_t time) {
  if (name == 's' || name == 'n') return {1, 1, key_size, value_size};
  if (name == 'g' || name == 'b') return {1, time, 1};
  return {1, time, 1, name == 'q' || name == 'k' ? key_size : value_size};
}

Numbers plain_values(char name, std::int64_t count) {
  if (name == 'g') return Numbers(static_cast<std::size_t>(count), -0.1);
  if (name == 'b') return Numbers(static_cast<std::size_t>(count), 0.9);
  return random_numbers(count, static_cast<std::uint32_t>(name), 0.2);
}

// `names` with random values, but `special` in one element of `operand`: of a token, or of a state.
struct Place {
  char operand;
  std::int64_t token;
  double special;
};
std::vector<Value> operands_with(const Place& place, const std::string& names, std::int64_t time) {
  std::vector<Value> operands;
  for (const char name : names) {
    const Sizes shape = shape_of(name, time);
    const std::int64_t count = count_of(shape), width = shape[1] == time ? count / time : count;
    Numbers numbers = plain_values(name, count);
    const std::int64_t first = shape[1] == time ? place.token * width : 0;
    if (name == place.operand) numbers[static_cast<std::size_t>(first + width / 2)] = place.special;
    operands.push_back(floats_of(shape, numbers));
  }
  return operands;
}

// Calls `check` for a special value in each operand, at the first, a middle and the last token. A log decay of minus
// infinity, which forgets the state, is an ordinary value; one of plus infinity is not one that models have.
void for_each_place(const std::string& names, std::int64_t time,
                    const std::function<void(const Place&, const std::string&)>& check) {
  for (const char operand : names)
    for (const double special : specials)
      for (const std::int64_t at : places(time))
        if (operand != 'g' || special != infinity)
          check({operand, at, special}, fmt::format("{} in {} of token {} of {}", special, operand, at, time));
}

TEST(Nan, ReachesOnlyLaterTokensOfLinearAttention) {
  for (const std::int64_t time : times)
    for (const std::string names : {"sqkvg", "sqkvgb"})
      for_each_place(names, time, [&](const Place& place, const std::string& what) {
        const Sample sample = sample_with(operands_with(place, names, time), [](Xs x) {
          const Operand beta = x.size() == 6 ? Operand(x[5]) : Operand();
          return apply(Op::linear_attention, {x[0], x[1], x[2], x[3], x[4], beta, {}, {}}, NoAttrs{})[1];
        });
        expect_as_far_as_the_reference(sample, std::isinf(place.special), what);
      });
}

// All gradients, one after another.
Tensor gradients(Xs x) {
  const bool is_delta = x.size() == 8;
  const Operand beta = is_delta ? Operand(x[5]) : Operand(), dnext = x[x.size() - 2], dy = x.back();
  std::vector<Operand> lines;
  for (const Tensor& gradient :
       apply(Op::linear_attention_grad, {x[0], x[1], x[2], x[3], x[4], beta, {}, dnext, dy}, NoAttrs{}))
    lines.emplace_back(reshape(gradient, {element_count(gradient.shape())}));
  return concat(lines, 0);
}

TEST(Nan, ReachesOnlyTheGradientsOfLinearAttentionThatDependOnIt) {
  for (const std::int64_t time : times)
    for (const std::string names : {"sqkvgny", "sqkvgbny"})
      for_each_place(names, time, [&](const Place& place, const std::string& what) {
        expect_as_far_as_the_reference(sample_with(operands_with(place, names, time), gradients),
                                       std::isinf(place.special), what);
      });
}

TEST(Nan, ReachesOnlyLaterTokensOfCausalConvolutions) {
  constexpr std::int64_t channels = 70, taps = 4;  // more channels than a task has
  for (const std::int64_t time : times)
    for (const double special : specials)
      for (const std::int64_t at : places(time)) {
        Numbers x = random_numbers(time * channels, 1);
        x[static_cast<std::size_t>(at * channels + 65)] = special;
        expect_like_the_reference(sample_with({floats_of({1, time, channels}, x),
                                               floats_of({channels, taps}, random_numbers(channels * taps, 2))},
                                              [](Xs in) { return causal_conv1d(in[0], in[1]).y; }),
                                  1e-4, 1e-4);
      }
}

}  // namespace
}  // namespace jerboa::test::recurrent_nan_test
