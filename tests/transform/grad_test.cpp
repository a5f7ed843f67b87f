#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/transform/decompose.h>
#include <jerboa/transform/grad.h>

#include "lower/deep_graphs.h"
#include "reference/evaluate.h"
#include "support/expect_error.h"

namespace jerboa::test {
namespace {

using Xs = const std::vector<Tensor>&;
using Numbers = std::vector<double>;

// The gradient of a loss for its first operand.
Numbers gradient(const std::vector<Value>& values, const std::function<Tensor(Xs)>& loss) {
  return evaluate_one(values, [&](Xs x) { return grad(loss(x), {x[0]})[0]; });
}

template <class Body>
std::string refusal(Body body) {
  return message_of<GraphError>([&] { trace([&] { body(tensor_input("x", {2})); }); });
}

TEST(Grad, SharesTiesInEqualParts) {
  const auto x = floats({3, 5, 5, 1});
  EXPECT_EQ(gradient({x}, [](Xs in) { return max(in[0]); }), (Numbers{0, 0.5, 0.5, 0}));
  EXPECT_EQ(gradient({x}, [](Xs in) { return min(in[0]); }), (Numbers{0, 0, 0, 1}));
  EXPECT_EQ(gradient({floats({1, 2, 3}), floats({2, 2, 2})}, [](Xs in) { return sum(maximum(in[0], in[1])); }),
            (Numbers{0, 0.5, 1}));
  EXPECT_EQ(gradient({floats({1, 2, 3}), floats({2, 2, 2})}, [](Xs in) { return sum(minimum(in[0], in[1])); }),
            (Numbers{1, 0.5, 0}));
  EXPECT_EQ(gradient({x}, [](Xs in) { return sum(top_k(in[0], 1).values); }), (Numbers{0, 1, 0, 0}));
}

TEST(Grad, TakesTheInnerSideOfKinks) {
  EXPECT_EQ(gradient({floats({-1, 0, 1})}, [](Xs in) { return sum(relu(in[0])); }), (Numbers{0, 0, 1}));
  EXPECT_EQ(gradient({floats({-1, 0, 1})}, [](Xs in) { return sum(abs(in[0])); }), (Numbers{-1, 0, 1}));
  EXPECT_EQ(gradient({floats({-2, -1, 1, 2})}, [](Xs in) { return sum(clamp(in[0], -1, 1)); }), (Numbers{0, 1, 1, 0}));
}

TEST(Grad, AddsUpOverSeveralUses) {
  EXPECT_EQ(gradient({floats({3, 4})}, [](Xs in) { return sum(in[0] * in[0] + in[0]); }), (Numbers{7, 9}));
  EXPECT_EQ(gradient({floats({1, 2}), integers({0, 0, 1, 0})}, [](Xs in) { return sum(gather(in[0], in[1])); }),
            (Numbers{3, 1}));
}

int count(const Graph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == op; }));
}

// The gradient of each element is how often it was selected.
TEST(Grad, PutsSlicesBackWhereTheyWereTaken) {
  const auto x = floats({1, 1, 1, 1, 1, 1});
  const auto part = [](Xs in, int from, int to, double weight) { return sum(slice(in[0], 0, from, to)) * weight; };
  EXPECT_EQ(gradient({x}, [&](Xs in) { return part(in, 2, 4, 1); }), (Numbers{0, 0, 1, 1, 0, 0}));
  // In any order, with gaps, next to each other and overlapping.
  EXPECT_EQ(gradient({x}, [&](Xs in) { return part(in, 4, 5, 1) + part(in, 1, 2, 2); }), (Numbers{0, 2, 0, 0, 1, 0}));
  EXPECT_EQ(gradient({x}, [&](Xs in) { return part(in, 3, 6, 1) + part(in, 0, 3, 2); }), (Numbers{2, 2, 2, 1, 1, 1}));
  EXPECT_EQ(gradient({x}, [&](Xs in) { return part(in, 0, 4, 1) + part(in, 2, 6, 2) + part(in, 4, 6, 4); }),
            (Numbers{1, 1, 3, 3, 6, 6}));
  EXPECT_EQ(gradient({x}, [&](Xs in) { return part(in, 0, 2, 1) + part(in, 4, 6, 2) + sum(in[0]) * 8; }),
            (Numbers{9, 9, 8, 8, 10, 10}));
  EXPECT_EQ(gradient({x},
                     [&](Xs in) {
                       const Tensor table = reshape(in[0], {2, 3});
                       return sum(slice(table, 0, 1, 2)) + sum(slice(table, 1, 0, 1)) * 2 +
                              sum(slice(table, 1, 2, 3)) * 4 + sum(slice(table, 1, 0, 3, 2)) * 8;
                     }),
            (Numbers{10, 0, 12, 11, 1, 13}));
}

TEST(Grad, OfManySlicesIsOneConcatenation) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {4, 64, 8});
    Tensor loss = scalar(0);
    for (int t = 0; t < 64; ++t) loss = loss + mean(exp(slice(x, 1, t, t + 1)));
    output("dx", grad(loss, {x})[0]);
  });
  EXPECT_EQ(count(graph, Op::concat), 1);
  EXPECT_EQ(count(graph, Op::pad), 0);
}

// Blocks of a grid: a concatenation for each row of blocks, and one of the rows.
TEST(Grad, OfSlicesOfSlicesIsAConcatenationOfConcatenations) {
  const auto blocks = [](const Tensor& x, int size) {
    Tensor loss = scalar(0);
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j) {
        const Tensor row = slice(x, 0, i * size, (i + 1) * size);
        loss = loss + sum(exp(slice(row, 1, j * size, (j + 1) * size)));
      }
    return loss;
  };
  const Graph graph = trace([&] {
    const Tensor x = tensor_input("x", {16, 16, 3});
    output("dx", grad(blocks(x, 2), {x})[0]);
  });
  EXPECT_EQ(count(graph, Op::concat), 8 + 1);
  EXPECT_EQ(count(graph, Op::pad), 0);
}

// Views in between change the shapes of the parts, not where they belong.
TEST(Grad, OfSlicesWithViewsInBetweenIsOneConcatenation) {
  constexpr int steps = 32;
  const auto expect_joined = [](const char* what, int pads, const std::function<Tensor(const Tensor&, int)>& part) {
    const Graph graph = trace([&] {
      const Tensor x = tensor_input("x", {steps, 4, 6});
      Tensor loss = scalar(0);
      for (int t = 0; t < steps; ++t) loss = loss + mean(exp(part(x, t)));
      output("dx", grad(loss, {x})[0]);
    });
    EXPECT_EQ(count(graph, Op::concat), 1) << what;
    EXPECT_EQ(count(graph, Op::pad), pads) << what;
  };
  const auto step = [](const Tensor& x, int t) { return slice(x, 0, t, t + 1); };
  expect_joined("squeezed", 0, [&](const Tensor& x, int t) { return squeeze(step(x, t), {0}); });
  expect_joined("reshaped", 0, [&](const Tensor& x, int t) { return reshape(step(x, t), {4, 6}); });
  // One padding for all, because they leave out the same columns.
  expect_joined("sliced again", 1, [&](const Tensor& x, int t) { return slice(squeeze(step(x, t), {0}), 1, 0, 2); });
  expect_joined("sliced after a reshape", 1, [&](const Tensor& x, int t) {
    return slice(reshape(step(x, t), {2, 2, 6}), 2, 1, 4);
  });
  expect_joined("a view first", 0, [&](const Tensor& x, int t) { return step(reshape(x, {steps, 24}), t); });
  expect_joined("views all around", 0, [&](const Tensor& x, int t) {
    return squeeze(slice(squeeze(slice(unsqueeze(x, {0}), 1, t, t + 1), {0}), 0, 0, 1), {0});
  });
  expect_joined("a part of a split", 1, [&](const Tensor& x, int t) { return split(step(x, t), {2, 2, 2})[0]; });
}

TEST(Grad, PutsSlicesBackThroughViews) {
  const auto x = floats({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const auto of_table = [&](const std::function<Tensor(const Tensor&)>& loss) {
    return gradient({x}, [&](Xs in) { return loss(reshape(in[0], {3, 4})); });
  };
  const auto row = [](const Tensor& table, int i) { return squeeze(slice(table, 0, i, i + 1), {0}); };
  EXPECT_EQ(of_table([&](const Tensor& table) {
              return sum(slice(row(table, 2), 0, 1, 3)) + 2 * sum(slice(row(table, 0), 0, 1, 3));
            }),
            (Numbers{0, 2, 2, 0, 0, 0, 0, 0, 0, 1, 1, 0}));
  // Two parts of one view, and a use of all of it.
  EXPECT_EQ(of_table([&](const Tensor& table) {
              const Tensor line = row(table, 1);
              return sum(slice(line, 0, 0, 1)) + 2 * sum(slice(line, 0, 3, 4));
            }),
            (Numbers{0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0}));
  EXPECT_EQ(of_table([&](const Tensor& table) {
              const Tensor line = row(table, 1);
              return sum(slice(line, 0, 0, 1)) + 2 * sum(slice(line, 0, 3, 4)) + 4 * sum(line);
            }),
            (Numbers{0, 0, 0, 0, 5, 4, 4, 6, 0, 0, 0, 0}));
  // Rows of another width are no block of the table, halves of it are.
  EXPECT_EQ(of_table([](const Tensor& table) {
              const Tensor wide = reshape(table, {2, 6}), blocks = reshape(table, {3, 2, 2});
              return sum(slice(wide, 0, 1, 2)) + 2 * sum(slice(wide, 1, 0, 1)) +
                     4 * sum(slice(slice(blocks, 2, 1, 2), 0, 0, 2)) + 8 * sum(slice(blocks, 1, 1, 2));
            }),
            (Numbers{2, 4, 8, 12, 0, 4, 11, 13, 1, 1, 9, 9}));
  // Blocks on a diagonal have nothing to be joined with.
  EXPECT_EQ(of_table([&](const Tensor& table) {
              return sum(slice(row(table, 0), 0, 0, 1)) + 2 * sum(slice(row(table, 1), 0, 1, 2)) +
                     4 * sum(slice(row(table, 2), 0, 2, 4));
            }),
            (Numbers{1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 4, 4}));
}

TEST(Grad, PutsSlicesOfSlicesBackWhereTheyWereTaken) {
  const auto x = floats({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  struct Block {
    int top, bottom, left, right;
    double weight;
  };
  const auto of_blocks = [&](const std::vector<Block>& blocks) {
    return gradient({x}, [&](Xs in) {
      const Tensor table = reshape(in[0], {3, 4});
      Tensor loss = scalar(0);
      for (const auto& [top, bottom, left, right, weight] : blocks)
        loss = loss + weight * sum(slice(slice(table, 1, left, right), 0, top, bottom));
      return loss;
    });
  };
  EXPECT_EQ(of_blocks({{1, 2, 2, 4, 1}}), (Numbers{0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0}));
  // In rows of different heights, with gaps, on a diagonal and overlapping.
  EXPECT_EQ(of_blocks({{0, 1, 0, 2, 1}, {0, 1, 3, 4, 2}, {1, 3, 1, 2, 4}, {1, 3, 2, 4, 8}}),
            (Numbers{1, 1, 0, 2, 0, 4, 8, 8, 0, 4, 8, 8}));
  EXPECT_EQ(of_blocks({{0, 1, 0, 1, 1}, {1, 2, 1, 2, 2}, {2, 3, 2, 3, 4}}),
            (Numbers{1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 4, 0}));
  EXPECT_EQ(of_blocks({{0, 2, 0, 3, 1}, {1, 3, 1, 4, 2}, {0, 3, 0, 4, 4}}),
            (Numbers{5, 5, 5, 4, 5, 7, 7, 6, 4, 6, 6, 6}));
  // Twice along one axis, and through a slice with other uses.
  EXPECT_EQ(gradient({x}, [](Xs in) { return sum(slice(slice(in[0], 0, 2, 10), 0, 3, 5)); }),
            (Numbers{0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(gradient({x},
                     [](Xs in) {
                       const Tensor row = slice(reshape(in[0], {3, 4}), 0, 1, 2);
                       return sum(slice(row, 1, 0, 1)) + 2 * sum(slice(row, 1, 2, 4)) + 4 * sum(row);
                     }),
            (Numbers{0, 0, 0, 0, 5, 4, 6, 6, 0, 0, 0, 0}));
}

// One concatenation for the outputs of all steps, one for the gradient of what they read, and one for the four gates of
// each step.
TEST(Grad, OfAnUnrolledLstmAddsNoPaddedSlices) {
  const int steps = 16;
  const Graph graph = unrolled_lstm(steps);
  EXPECT_EQ(count(graph, Op::concat), 2 + steps);
  EXPECT_EQ(count(graph, Op::pad), 0);
}

// The operands of an op that decomposes may be one tensor, or come from one another.
TEST(Grad, CountsEachPathThroughADecompositionOnce) {
  const auto x = floats({0.3, -1});
  const auto plain = gradient({x}, [](Xs in) { return sum(silu(in[0]) * in[0]); });
  EXPECT_EQ(gradient({x}, [](Xs in) { return sum(swiglu(in[0], in[0])); }), plain);
  const auto chained = gradient({x}, [](Xs in) { return sum(silu(in[0]) * exp(in[0])); });
  EXPECT_EQ(gradient({x}, [](Xs in) { return sum(swiglu(in[0], exp(in[0]))); }), chained);
}

TEST(Grad, StopsAtStopGradient) {
  EXPECT_EQ(gradient({floats({3, 4})}, [](Xs in) { return sum(in[0] * stop_gradient(in[0])); }), (Numbers{3, 4}));
  EXPECT_EQ(gradient({floats({3, 4})}, [](Xs in) { return sum(exp(stop_gradient(square(in[0])))); }), (Numbers{0, 0}));
  EXPECT_EQ(evaluate_one({floats({3, -4})}, [](Xs in) { return stop_gradient(in[0]); }), (Numbers{3, -4}));
  // The compiled graph has no trace of it.
  const Graph graph = decompose(trace([] {
    const Tensor x = param_input("x", {2});
    output("y", stop_gradient(x));
    append_grad(sum(x * stop_gradient(tanh(x))));
  }));
  for (const Node& node : graph.nodes) EXPECT_NE(node.op, Op::stop_gradient);
}

TEST(Grad, IsZeroWhereNothingReachesTheLoss) {
  EXPECT_EQ(gradient({floats({1, 2}), floats({5})}, [](Xs in) { return sum(in[1]); }), (Numbers{0, 0}));
  EXPECT_EQ(gradient({floats({1.5, 2})}, [](Xs in) { return sum(cast(cast(in[0], DType::i32), DType::f32)); }),
            (Numbers{0, 0}));
  EXPECT_EQ(gradient({floats({1.5, 2})}, [](Xs in) { return sum(where(in[0] > 1.7, 1, 0)); }), (Numbers{0, 0}));
}

TEST(Grad, OfATensorInTheMiddle) {
  EXPECT_EQ(evaluate_one({floats({3})},
                         [](Xs in) {
                           const Tensor y = in[0] * 2;
                           return grad(sum(y * y), {y})[0];
                         }),
            Numbers{12});
}

TEST(Grad, RefusesNonScalarLosses) {
  const std::string message = refusal([](Tensor x) { grad(exp(x), {x}); });
  EXPECT_EQ(message.substr(0, 59), "the loss must be a float scalar, not f32[2] (grad_test.cpp:");
  EXPECT_NE(message.find("); take its mean or sum"), std::string::npos) << message;
  EXPECT_EQ(refusal([](Tensor x) { grad(sum(cast(x, DType::i32)), {x}); }).substr(0, 42),
            "the loss must be a float scalar, not i32[]");
}

TEST(Grad, RefusesGradientsForIntegers) {
  const auto message = refusal([](Tensor x) { grad(sum(x), {cast(x, DType::i32).named("ids")}); });
  EXPECT_EQ(message.substr(0, 49), "ids is i32: only float tensors have gradients (gr");
}

TEST(Grad, RefusesTensorsOfAnotherGraph) {
  Tensor other;
  trace([&] { other = tensor_input("y", {2}); });
  EXPECT_NE(refusal([&](Tensor x) { grad(sum(x), {other}); }).find("another graph"), std::string::npos);
  EXPECT_NE(refusal([&](Tensor) { grad(other, {}); }).find("another graph"), std::string::npos);
}

// Only kernels use it; a gradient that silently ignores it would be wrong.
TEST(Grad, RecomputesSlopesAndNothingThatNeedsNoOperand) {
  const Graph graph = trace([] {
    const Tensor x = param_input("x", {4});
    output("loss", sum(cast(tanh(cast(-x, DType::f16)), DType::f32)));
    append_grad(Tensor(current_graph("test").identity(), current_graph("test").outputs[0].tensor));
  });
  int recomputed = 0;
  for (const Node& node : graph.nodes) {
    recomputed += static_cast<int>(node.recompute);
    EXPECT_FALSE(node.recompute && (node.op == Op::cast || node.op == Op::neg)) << name(node.op);
  }
  EXPECT_GT(recomputed, 0);
}

TEST(Grad, RefusesTheLogSumExpOfAttention) {
  const auto message = message_of<GraphError>([] {
    trace([] {
      const Tensor x = tensor_input("x", {1, 1, 2, 2});
      const auto parts = apply(Op::attention, {Operand(x, "model.cpp", 7), x, x, {}, {}, {}, {}}, AttentionAttrs{});
      grad(sum(parts[0]) + sum(parts[1]), {x});
    });
  });
  EXPECT_EQ(message, "attention: its log-sum-exp cannot be differentiated (model.cpp:7)");
}

// The gradient of the queries is there, but that of keys and values would be lost.
TEST(Grad, RefusesKeysThatAreRoundedTo8Bits) {
  constexpr const char* refused =
      "attention: what is rounded to 8 bits cannot be differentiated; use a cache of f32 or f16 (model.cpp:7)";
  // The gradient of the queries, or of the appended values.
  const auto differentiate = [](bool to_appended, const std::function<Tensor(const Tensor&)>& seen) {
    trace([&] {
      const Tensor q = tensor_input("q", {1, 1, 2, 4}), x = tensor_input("x", {1, 1, 2, 4});
      const Tensor cache = state_input("cache", {1, 1, 2, 2}, DType::u32);
      const Tensor keys = seen(cache_append(cache, exp(x), tensor_input("positions", {1, 2}, DType::i32)));
      EXPECT_EQ(grad(sum(attention(Operand(q, "model.cpp", 7), keys, keys)), {to_appended ? x : q}).size(), 1u);
    });
  };
  const auto as_it_is = [](const Tensor& keys) { return keys; };
  const auto through_views = [](const Tensor& keys) { return slice(reshape(keys, {1, 1, 2, 2}), 2, 0, 1); };
  EXPECT_EQ(message_of<GraphError>([&] { differentiate(true, as_it_is); }), refused);
  EXPECT_EQ(message_of<GraphError>([&] { differentiate(true, through_views); }), refused);
  EXPECT_NO_THROW(differentiate(false, as_it_is)) << "nothing flows through the keys";
  EXPECT_NO_THROW(differentiate(false, through_views));
}

// Ops that are differentiated by their decomposition lose no gradient either.
TEST(Grad, RefusesWeightsOfKeysThatAreRoundedTo8Bits) {
  const auto differentiate = [](bool to_appended) {
    trace([&] {
      const Tensor q = tensor_input("q", {1, 1, 2, 4}), x = tensor_input("x", {1, 1, 2, 4});
      const Tensor cache = state_input("cache", {1, 1, 2, 2}, DType::u32);
      const Tensor keys = cache_append(cache, x, tensor_input("positions", {1, 2}, DType::i32));
      EXPECT_EQ(grad(sum(attention_weights(Operand(q, "model.cpp", 7), keys)), {to_appended ? x : q}).size(), 1u);
    });
  };
  EXPECT_EQ(message_of<GraphError>([&] { differentiate(true); }),
            "attention_weights: what is rounded to 8 bits cannot be differentiated; use a cache of f32 or f16 "
            "(model.cpp:7)");
  EXPECT_NO_THROW(differentiate(false));
}

TEST(AppendGrad, GivesOneForEachTrainableParameter) {
  const Graph graph = trace([] {
    const Tensor w = param_input("w", {2}), b = param_input("b", {2}), unused = param_input("unused", {3});
    const Tensor frozen = param_input("frozen", {2}, {.trainable = false});
    const auto pairs = append_grad(sum(w * frozen + b));
    ASSERT_EQ(pairs.size(), 3u);
    const auto names = [](const ParamGrad& pair) { return pair.param.name() + " " + pair.grad.name(); };
    EXPECT_EQ(names(pairs[0]), "w d_w");
    EXPECT_EQ(names(pairs[1]), "b d_b");
    EXPECT_EQ(names(pairs[2]), "unused d_unused");
    EXPECT_EQ(pairs[2].grad.shape(), Shape{3});
    EXPECT_TRUE(unused);
  });
  EXPECT_EQ(graph.find("d_frozen"), no_tensor);
}

TEST(AppendGrad, NamesEachGradientDifferently) {
  trace([] {
    const Tensor a = param_input("a", {2}), b = param_input("b", {2});
    const auto pairs = append_grad(sum(a + b));  // one cotangent serves both
    EXPECT_EQ(pairs[0].grad.name(), "d_a");
    EXPECT_EQ(pairs[1].grad.name(), "d_b");
  });
}

}  // namespace
}  // namespace jerboa::test
