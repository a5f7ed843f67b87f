#include <cfloat>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include <jerboa/base/error.h>

#include "reference/evaluate.h"
#include "support/expect_error.h"

// The semantics documented above the op table, in numbers.
namespace jerboa::test {
namespace {

using Xs = const std::vector<Tensor>&;
using Numbers = std::vector<double>;

constexpr double low = std::numeric_limits<std::int32_t>::lowest(), high = std::numeric_limits<std::int32_t>::max();
constexpr double top = std::numeric_limits<std::uint32_t>::max();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Value unsigneds(const Numbers& data) { return value(DType::u32, {static_cast<std::int64_t>(data.size())}, data); }

TEST(Integers, Wrap) {
  const auto a = integers({high, low, low, 65536}), b = integers({1, -1, -1, 65536});
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return x[0] + x[1]; }), (Numbers{low, high, high, 131072}));
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return x[0] - x[1]; }), (Numbers{high - 1, low + 1, low + 1, 0}));
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return x[0] * x[1]; }), (Numbers{high, low, low, 0}));
  EXPECT_EQ(evaluate_one({a}, [](Xs x) { return -x[0]; }), (Numbers{-high, low, low, -65536}));
  EXPECT_EQ(evaluate_one({a}, [](Xs x) { return abs(x[0]); }), (Numbers{high, low, low, 65536}));
  EXPECT_EQ(evaluate_one({a}, [](Xs x) { return sum(x[0]); }), (Numbers{high + low + low + 65536}));
  EXPECT_EQ(evaluate_one({integers({high, 1, 1})}, [](Xs x) { return cumsum(x[0]); }), (Numbers{high, low, low + 1}));
  EXPECT_EQ(evaluate_one({unsigneds({0, top}), unsigneds({1, 1})}, [](Xs x) { return x[0] - x[1]; }),
            (Numbers{top, top - 1}));
  EXPECT_EQ(evaluate_one({unsigneds({top, 65537})}, [](Xs x) { return x[0] * x[0]; }), (Numbers{1, 131073}));
}

TEST(Integers, DivideTowardsZero) {
  const auto a = integers({7, -7, 7, -7, 5, low}), b = integers({2, 2, -2, -2, 0, -1});
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return x[0] / x[1]; }), (Numbers{3, -3, -3, 3, 5, low}));
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return mod(x[0], x[1]); }), (Numbers{1, -1, 1, -1, 0, 0}));
  EXPECT_EQ(evaluate_one({unsigneds({top, 9, 8}), unsigneds({top, 0, 3})}, [](Xs x) { return x[0] / x[1]; }),
            (Numbers{1, 9, 2}));
  EXPECT_EQ(evaluate_one({unsigneds({top, 9, 8}), unsigneds({top, 0, 3})}, [](Xs x) { return mod(x[0], x[1]); }),
            (Numbers{0, 0, 2}));
  EXPECT_EQ(evaluate_one({floats({5.5, -5.5}), floats({2, 2})}, [](Xs x) { return mod(x[0], x[1]); }),
            (Numbers{1.5, -1.5}));
}

TEST(Integers, ShiftByTheAmountModulo32) {
  const auto a = integers({1, -8, -8, 1}), b = integers({33, 1, 32, 31});
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return shift_left(x[0], x[1]); }), (Numbers{2, -16, -8, low}));
  EXPECT_EQ(evaluate_one({a, b}, [](Xs x) { return shift_right(x[0], x[1]); }), (Numbers{0, -4, -8, 0}));
  EXPECT_EQ(evaluate_one({unsigneds({top}), unsigneds({28})}, [](Xs x) { return shift_right(x[0], x[1]); }),
            (Numbers{15}));
  EXPECT_EQ(evaluate_one({integers({5, -1})}, [](Xs x) { return bit_not(x[0]); }), (Numbers{-6, 0}));
  EXPECT_EQ(evaluate_one({integers({12}), integers({10})}, [](Xs x) { return bit_xor(x[0], x[1]); }), (Numbers{6}));
}

TEST(Rounding, GoesToTheEvenNeighbour) {
  const auto x = floats({0.5, 1.5, 2.5, -0.5, -1.5, 2.4, -2.6});
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return round(in[0]); }), (Numbers{0, 2, 2, 0, -2, 2, -3}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return floor(in[0]); }), (Numbers{0, 1, 2, -1, -2, 2, -3}));
}

TEST(Casts, TruncateAndClamp) {
  const auto x = floats({2.9, -2.9, 3e9, -3e9, 5e9, infinity, -infinity, nan});
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return cast(in[0], DType::i32); }),
            (Numbers{2, -2, high, low, high, high, low, 0}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return cast(in[0], DType::u32); }), (Numbers{2, 0, 3e9, 0, top, top, 0, 0}));
  EXPECT_EQ(evaluate_one({floats({0, 0.1, -3})}, [](Xs in) { return cast(in[0], DType::boolean); }),
            (Numbers{0, 1, 1}));
  EXPECT_EQ(evaluate_one({integers({-1, 5})}, [](Xs in) { return cast(in[0], DType::u32); }), (Numbers{top, 5}));
  EXPECT_EQ(evaluate_one({unsigneds({top, 5})}, [](Xs in) { return cast(in[0], DType::i32); }), (Numbers{-1, 5}));
}

TEST(Precision, RoundsEveryResultOrNone) {
  const auto third = [](Xs) { return scalar(1.0) / 3; };
  EXPECT_EQ(evaluate_one({}, third, ReferencePrecision::f32), Numbers{1.0f / 3.0f});
  EXPECT_EQ(evaluate_one({}, third, ReferencePrecision::f64), Numbers{1.0 / 3.0});
  const auto half = [](Xs x) { return cast(x[0], DType::f16); };
  EXPECT_EQ(evaluate_one({floats({1.0 / 3.0, 70000})}, half), (Numbers{0.333251953125, infinity}));
  EXPECT_EQ(evaluate_one({floats({1.0 / 3.0, 70000})}, half, ReferencePrecision::f64), (Numbers{1.0 / 3.0, 70000}));
  const auto brain = [](Xs x) { return cast(x[0], DType::bf16); };
  EXPECT_EQ(evaluate_one({floats({1.0 / 3.0})}, brain), Numbers{0.333984375});
  // Sums are kept in double until the end of the op.
  EXPECT_EQ(evaluate_one({floats({1e8, 1, -1e8})}, [](Xs x) { return sum(x[0]); }), Numbers{1});
}

TEST(Reductions, OfNothingAreNeutral) {
  const auto none = floats({2, 0}, {});
  EXPECT_EQ(evaluate_one({none}, [](Xs x) { return sum(x[0], {1}); }), (Numbers{0, 0}));
  EXPECT_EQ(evaluate_one({none}, [](Xs x) { return mean(x[0], {1}); }), (Numbers{0, 0}));
  EXPECT_EQ(evaluate_one({none}, [](Xs x) { return max(x[0], {1}); }), (Numbers{-FLT_MAX, -FLT_MAX}));
  EXPECT_EQ(evaluate_one({none}, [](Xs x) { return min(x[0], {1}); }), (Numbers{FLT_MAX, FLT_MAX}));
  EXPECT_EQ(evaluate_one({none}, [](Xs x) { return argmax(x[0], 1); }), (Numbers{0, 0}));
  EXPECT_EQ(evaluate_one({integers({0}, {})}, [](Xs x) { return max(x[0]); }), Numbers{low});
  EXPECT_EQ(evaluate_one({value(DType::u32, {0}, {})}, [](Xs x) { return min(x[0]); }), Numbers{top});
  EXPECT_EQ(evaluate_one({value(DType::f16, {0}, {})}, [](Xs x) { return max(x[0]); }), Numbers{-65504});
  EXPECT_EQ(evaluate_one({none}, [](Xs x) { return all_finite(x[0]); }), Numbers{1});
}

TEST(Reductions, AllFiniteSeesOverflow) {
  const auto check = [](Xs x) { return all_finite(x[0] * x[0]); };
  EXPECT_EQ(evaluate_one({floats({1, 1e10})}, check), Numbers{1});
  EXPECT_EQ(evaluate_one({floats({1, 1e30})}, check), Numbers{0});
  EXPECT_EQ(evaluate_one({floats({nan})}, check), Numbers{0});
  EXPECT_EQ(evaluate_one({value(DType::f16, {1}, {300})}, check), Numbers{0});
}

TEST(Sorting, IsStable) {
  const auto x = integers({3, 1, 3, 2, 1});
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return argmax(in[0]); }), Numbers{0});
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return argsort(in[0]); }), (Numbers{1, 4, 3, 0, 2}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return argsort(in[0], 0, true); }), (Numbers{0, 2, 3, 1, 4}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return top_k(in[0], 3).indices; }), (Numbers{0, 2, 3}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return top_k(in[0], 3).values; }), (Numbers{3, 3, 2}));
}

TEST(Scans, RunForwardsOrFromTheEnd) {
  const auto x = floats({2, 3}, {1, 2, 3, 10, 20, 30});
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return cumsum(in[0]); }), (Numbers{1, 3, 6, 10, 30, 60}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return cumsum(in[0], -1, true); }), (Numbers{6, 5, 3, 60, 50, 30}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return cumsum(in[0], 0); }), (Numbers{1, 2, 3, 11, 22, 33}));
}

TEST(Shapes, MoveElements) {
  Numbers count(6);
  std::iota(count.begin(), count.end(), 0);
  const auto x = floats({2, 3}, count);
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return transpose(in[0], {1, 0}); }), (Numbers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return swap_axes(in[0], 0, -1); }), (Numbers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return slice(in[0], 1, 0, 3, 2); }), (Numbers{0, 2, 3, 5}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return split(in[0], {1, 2}, 1)[1]; }), (Numbers{1, 2, 4, 5}));
  EXPECT_EQ(evaluate_one({x},
                         [](Xs in) {
                           return concat({in[0], in[0]}, 1);
                         }),
            (Numbers{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(evaluate_one({x},
                         [](Xs in) {
                           return pad(in[0], {0, 1}, {1, 0}, 9);
                         }),
            (Numbers{9, 0, 1, 2, 9, 3, 4, 5, 9, 9, 9, 9}));
  EXPECT_EQ(evaluate_one({x}, [](Xs in) { return squeeze(unsqueeze(in[0], {1}), {1}); }), count);
}

TEST(Indices, StayInBounds) {
  const auto table = floats({2, 1}, {5, 6});
  EXPECT_EQ(evaluate_one({table, integers({-4, 0, 1, 9})}, [](Xs x) { return embedding(x[0], x[1]); }),
            (Numbers{5, 5, 6, 6}));
  EXPECT_EQ(evaluate_one({floats({5, 6}), integers({-4, 9})}, [](Xs x) { return gather(x[0], x[1]); }),
            (Numbers{5, 6}));
  EXPECT_EQ(evaluate_one({floats({5, 6}), integers({-1, 2, 1}), floats({1, 2, 3})},
                         [](Xs x) { return scatter(x[0], x[1], x[2]); }),
            (Numbers{5, 3}));
  EXPECT_EQ(evaluate_one({integers({-1, 1, 5})}, [](Xs x) { return one_hot(x[0], 2); }), (Numbers{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(evaluate_one({integers({0, 1, 1, -1}), floats({4, 1}, {1, 2, 3, 4})},
                         [](Xs x) { return embedding_grad(x[0], x[1], 2); }),
            (Numbers{1, 5}));
}

TEST(Scatters, TheLastOneWinsOrAllAdd) {
  const std::vector<Value> in{floats({1, 1, 1}), integers({2, 0, 2}), floats({5, 6, 7})};
  EXPECT_EQ(evaluate_one(in, [](Xs x) { return scatter(x[0], x[1], x[2]); }), (Numbers{6, 1, 7}));
  EXPECT_EQ(evaluate_one(in, [](Xs x) { return scatter_add(x[0], x[1], x[2]); }), (Numbers{7, 1, 13}));
}

TEST(CacheAppend, PutsValuesAtPositions) {
  const std::vector<Value> in{floats({1, 1, 3, 1}, {7, 8, 9}), floats({1, 1, 4, 1}, {1, 2, 3, 4}),
                              integers({1, 4}, {-1, 2, 4, 0})};
  EXPECT_EQ(evaluate_one(in, [](Xs x) { return cache_append(x[0], x[1], x[2]); }), (Numbers{4, 8, 2}));
  EXPECT_EQ(evaluate_one(in, [](Xs x) { return cache_append(x[0], x[1], x[2], {.ring = true}); }), (Numbers{4, 3, 2}));
}

TEST(Random, IsThreefry) {
  // The first vector of the known answers of Random123: key 0, counter 0 gives 6b200159 99ba4efe.
  const auto zero = unsigneds({0, 0});
  EXPECT_EQ(evaluate_one({zero}, [](Xs x) { return random(x[0], {1}); }), Numbers{0x6b2001 * 0x1p-24});
  const auto key = unsigneds({42, 7});
  EXPECT_EQ(evaluate_one({key}, [](Xs x) { return random(x[0], {2}, Distribution::uniform, 3); })[1],
            7911689 * 0x1p-24);
  EXPECT_NEAR(evaluate_one({key}, [](Xs x) { return random(x[0], {2}, Distribution::normal, 3); })[1],
              1.0870538609720728, 1e-6);
}

TEST(Random, HasTheMomentsOfItsDistribution) {
  const auto moments = [](Distribution distribution) {
    const auto x = evaluate_one({unsigneds({1, 2})}, [&](Xs in) { return random(in[0], {20000}, distribution); });
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / 20000;
    double variance = 0;
    for (const double one : x) variance += (one - mean) * (one - mean) / 20000;
    return std::pair(mean, variance);
  };
  const auto [uniform_mean, uniform_variance] = moments(Distribution::uniform);
  EXPECT_NEAR(uniform_mean, 0.5, 0.01);
  EXPECT_NEAR(uniform_variance, 1.0 / 12, 0.003);
  const auto [normal_mean, normal_variance] = moments(Distribution::normal);
  EXPECT_NEAR(normal_mean, 0, 0.03);
  EXPECT_NEAR(normal_variance, 1, 0.05);
}

TEST(CrossEntropy, IgnoresNegativeTargetsAndTakesAMask) {
  const std::vector<Value> in{floats({3, 2}, {0, 0, 0, 0, 0, 0}), integers({0, -100, 1}), floats({1, 1, 0.5})};
  const double ln2 = 0.6931471824645996;
  EXPECT_EQ(evaluate_one(in, [](Xs x) { return cross_entropy(x[0], x[1]); }), (Numbers{ln2, 0, ln2}));
  EXPECT_EQ(evaluate_one(in, [](Xs x) { return cross_entropy(x[0], x[1], {.mask = x[2]}); }),
            (Numbers{ln2, 0, ln2 / 2}));
}

TEST(Optimizers, TakeOneStep) {
  const auto one = [](double x) { return floats({1}, {x}); };
  const std::vector<Value> in{one(1), one(0.5), one(0.2), one(0.3), value(DType::f32, {}, {0.1}), integers({}, {3})};
  const double m = 0.9 * 0.2 + 0.1 * 0.5, v = 0.99 * 0.3 + 0.01 * 0.25;
  const double change = (m / (1 - std::pow(0.9, 3))) / (std::sqrt(v / (1 - std::pow(0.99, 3))) + 1e-3);
  const auto adam = evaluate_all(
      in,
      [](Xs x) {
        const auto next = adam_update(x[0], x[1], x[2], x[3], x[4], x[5], {0.9, 0.99, 1e-3, 0.05});
        return std::vector<Tensor>{next.param, next.m, next.v};
      },
      ReferencePrecision::f64);
  EXPECT_NEAR(adam[0].data[0], 1 * (1 - 0.1 * 0.05) - 0.1 * change, 1e-12);
  EXPECT_NEAR(adam[1].data[0], m, 1e-12);
  EXPECT_NEAR(adam[2].data[0], v, 1e-12);
  const auto sgd = evaluate_all(
      {one(1), one(0.5), value(DType::f32, {}, {0.1}), one(0.2)},
      [](Xs x) {
        const auto next = sgd_update(x[0], x[1], x[2], x[3], {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
        return std::vector<Tensor>{next.param, next.velocity};
      },
      ReferencePrecision::f64);
  const double grad = 0.5 + 0.01, velocity = 0.9 * 0.2 + grad;
  EXPECT_NEAR(sgd[0].data[0], 1 - 0.1 * (grad + 0.9 * velocity), 1e-12);
  EXPECT_NEAR(sgd[1].data[0], velocity, 1e-12);
}

TEST(Evaluator, ChecksTheValuesOfLeaves) {
  const Graph graph = trace([] { output("y", exp(tensor_input("x", {2, 3}))); });
  const auto run = [&](const Value& given) {
    return [&] { evaluate_reference(graph, {1}, [&](const TensorInfo&) { return given; }); };
  };
  EXPECT_NO_THROW(run(floats({2, 3}, Numbers(6)))());
  expect_error<UsageError>(run(floats({3, 2}, Numbers(6))), "x is f32[2, 3], but was given f32[3, 2]");
  expect_error<UsageError>(run(integers({2, 3}, Numbers(6))), "x is f32[2, 3], but was given i32[2, 3]");
}

TEST(Evaluator, ComputesOnlyKeptTensors) {
  TensorId kept = no_tensor;
  const Graph graph = trace([&] {
    const Tensor y = exp(tensor_input("x", {}));
    kept = y.id();
    output("y", y + tensor_input("unused", {}));
  });
  const auto leaf = [](const TensorInfo& info) {
    EXPECT_EQ(info.name, "x");
    return floats({}, {0});
  };
  EXPECT_EQ(evaluate_reference(graph, {kept}, leaf)[0].data, Numbers{1});
}

TEST(Evaluator, ConvertsBetweenValuesAndHostTensors) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32, DType::boolean}) {
    const Value original = value(dtype, {2}, {0, 1});
    const HostTensor host = to_host(original);
    EXPECT_EQ(host.dtype(), dtype);
    EXPECT_EQ(to_value(host).data, original.data);
  }
}

}  // namespace
}  // namespace jerboa::test
