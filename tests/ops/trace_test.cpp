#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>

#include "support/expect_error.h"

// Misuse of traces and tensors, and the state that a trace leaves behind.
namespace jerboa::test {
namespace {

/// Expects a GraphError that is `text` followed by the place in this file.
template <class Body>
void expect_graph_error(Body body, const std::string& text) {
  const std::string message = message_of<GraphError>(body);
  const std::string place = " (trace_test.cpp:";
  EXPECT_EQ(message.substr(0, message.rfind(place)), text);
  EXPECT_NE(message.rfind(place), std::string::npos) << message;
}

TEST(Trace, OpsOutsideAreRefused) {
  Tensor kept;
  trace([&] { kept = tensor_input("x", {2}); });
  EXPECT_FALSE(is_tracing());
  const std::string where = ": ops work only inside trace(), a model's forward function or a loss";
  expect_graph_error([&] { kept + 1; }, "add" + where);
  expect_graph_error([&] { tensor_input("x", {2}); }, "tensor_input" + where);
  expect_graph_error([&] { scalar(1); }, "scalar" + where);
  expect_graph_error([&] { constant(HostTensor(1.0f)); }, "constant" + where);
  expect_graph_error([&] { arange(3); }, "arange" + where);
  expect_graph_error([&] { random_normal({3}); }, "random_normal" + where);
  expect_graph_error([&] { output("y", kept); }, "output" + where);
  expect_graph_error([&] { capture(kept, "y"); }, "capture" + where);
  expect_graph_error([&] { update(kept, kept); }, "update" + where);
  expect_error<GraphError>([&] { kept.shape(); }, "shape" + where);
}

// Errors do not name the ops that it consists of.
TEST(Trace, ErrorsNameTheCalledFunction) {
  const Tensor none;
  const std::string where = ": ops work only inside trace(), a model's forward function or a loss";
  expect_graph_error([] { zeros({2}); }, "zeros" + where);
  expect_graph_error([] { full({2}, 1); }, "full" + where);
  expect_graph_error([&] { zeros_like(none); }, "zeros_like" + where);
  expect_graph_error([&] { split<3>(none); }, "split" + where);
  expect_graph_error([&] { square(none); }, "square" + where);
  expect_graph_error([&] { cast(none, DType::f16); }, "cast" + where);
  expect_graph_error([&] { split_heads(none, 2); }, "split_heads" + where);
  expect_graph_error([&] { attention(none, none, none, {.heads = 2}); }, "attention" + where);

  const auto refusal = [](auto body) { return message_of<ShapeError>([&] { trace([&] { body(); }); }); };
  const Dim large = std::int64_t{1} << 40;
  EXPECT_EQ(refusal([&] { zeros({large, large}); }).find("zeros: f32["), 0u);
  EXPECT_EQ(refusal([&] { full({large, large}, 1); }).find("full: f32["), 0u);
  EXPECT_EQ(refusal([] { zeros({-1, 3}); }).find("zeros: "), 0u);
  EXPECT_EQ(refusal([] { split<3>(tensor_input("x", {2, 8}), 5); }).find("split: axis 5 is out of range"), 0u);
  EXPECT_EQ(refusal([] { zeros({2}) + zeros({3}); }).find("add: "), 0u);
}

TEST(Trace, TensorsOfAnotherGraphAreRefused) {
  Tensor kept;
  trace([&] { kept = tensor_input("x", {2}); });
  const auto inside = [&](auto body) { return [&, body] { trace([&] { body(tensor_input("x", {2})); }); }; };
  const std::string another = "an operand belongs to another graph, not the one being traced";
  expect_graph_error(inside([&](Tensor x) { x + kept; }), "add: " + another);
  expect_graph_error(inside([&](Tensor) { 2 * kept; }), "mul: " + another);
  expect_graph_error(inside([&](Tensor x) { concat({x, kept}); }), "concat: " + another);
  expect_graph_error(inside([&](Tensor) { output("y", kept); }), "output y: " + another);
  expect_graph_error(inside([&](Tensor) { capture(kept, "y"); }), "capture y: " + another);
  expect_graph_error(inside([&](Tensor x) { update(kept, x); }), "update: " + another);
  expect_graph_error(inside([&](Tensor) { update(state_input("s", {2}), kept); }), "update: " + another);
  expect_error<GraphError>(inside([&](Tensor) { kept.shape(); }), "shape: the tensor belongs to another graph");
}

TEST(Trace, EmptyTensorsAreRefused) {
  expect_graph_error([] { trace([] { output("y", Tensor()); }); }, "output y: an operand is empty");
  expect_graph_error([] { trace([] { capture(Tensor(), "y"); }); }, "capture y: an operand is empty");
  expect_error<GraphError>([] { trace([] { exp(Tensor()); }); }, "exp: the operand x is missing");
  expect_error<GraphError>([] { trace([] { Tensor().shape(); }); }, "shape: the tensor is empty");
}

TEST(Trace, NamesAreTakenOnce) {
  expect_graph_error([] { trace([] { tensor_input("x", {2}), tensor_input("x", {3}); }); },
                     "tensor_input: the name x is taken");
  expect_graph_error([] { trace([] { tensor_input("x", {2}), param_input("x", {2}); }); },
                     "param_input: the name x is taken");
  expect_graph_error([] { trace([] { tensor_input("", {2}); }); }, "tensor_input: a name is required");
  expect_graph_error(
      [] {
        trace([] {
          const Tensor x = tensor_input("x", {2});
          output("y", x);
          output("y", x);
        });
      },
      "output: the name y is taken");
}

TEST(Trace, InputsMayBeNamedLikeTheResultsOfOps) {
  const Graph graph = trace([] {
    const Tensor y = exp(tensor_input("x", {2}));
    output("y", y + tensor_input(y.name(), {2}));
  });
  EXPECT_EQ(graph.tensor(graph.find("exp_1")).storage, Storage::input);
}

TEST(Trace, CapturesOfOneNameAreNumbered) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {2});
    capture(x, "a");
    capture(exp(x), "a");
  });
  ASSERT_EQ(graph.captures.size(), 2u);
  EXPECT_EQ(graph.captures[0].name, "a");
  EXPECT_EQ(graph.captures[1].name, "a.1");
}

TEST(Trace, UpdatesAreOfStateAndOnce) {
  expect_graph_error([] { trace([] { update(tensor_input("x", {2}), tensor_input("y", {2})); }); },
                     "update: x is neither a parameter nor a state");
  expect_graph_error(
      [] {
        trace([] {
          const Tensor s = state_input("s", {});
          update(s, s + 1);
          update(s, s + 2);
        });
      },
      "update: s is updated twice in one graph");
}

TEST(Trace, AFailureLeavesTheGraphAsItWas) {
  Tensor x;
  Graph graph = trace([&] { x = tensor_input("x", {2}); });
  const std::string before = print(graph);
  EXPECT_THROW(trace_into(graph, [&] { exp(x) + tensor_input("y", {3}); }), ShapeError);
  EXPECT_EQ(print(graph), before);
  EXPECT_FALSE(is_tracing());
  trace_into(graph, [&] { output("y", exp(x)); });  // the handle is still valid
  EXPECT_EQ(graph.outputs.size(), 1u);
}

TEST(Trace, TracesNest) {
  const Graph outer = trace([] {
    const Tensor x = tensor_input("x", {2});
    const Graph inner = trace([] { output("z", tensor_input("z", {3})); });
    EXPECT_EQ(inner.nodes.size(), 1u);
    output("y", exp(x));
  });
  EXPECT_EQ(outer.nodes.size(), 2u);
}

TEST(Trace, NumbersTakeTheTypeOfTheTensor) {
  const Graph graph = trace([] {
    const Tensor i = tensor_input("i", {2}, DType::i32), h = tensor_input("h", {2}, DType::f16);
    EXPECT_EQ((i + 1).dtype(), DType::i32);
    EXPECT_EQ((2 * h).dtype(), DType::f16);
    EXPECT_EQ(where(i > 0, h, 0).dtype(), DType::f16);
    EXPECT_EQ(where(i > 0, 1, 0).dtype(), DType::f32);
    EXPECT_EQ((i > 0).dtype(), DType::boolean);
  });
  EXPECT_FALSE(graph.nodes.empty());
}

TEST(Trace, NodesKnowTheUsersLine) {
  int line = 0;
  const Graph graph = trace([&] {
    const Tensor x = tensor_input("x", {1, 4, 8});
    line = __LINE__ + 1;
    attention(x, x, x, {.heads = 2});
  });
  for (std::size_t i = 1; i < graph.nodes.size(); ++i)
    EXPECT_EQ(graph.nodes[i].site, fmt::format("trace_test.cpp:{}", line)) << name(graph.nodes[i].op);
}

TEST(Trace, RandomOpsDrawFromStreamsOfTheirOwn) {
  const Graph graph = trace([] {
    output("a", random_uniform({2}));
    output("b", random_normal({2}));
  });
  EXPECT_EQ(graph.producer(graph.outputs[0].tensor).as<RandomAttrs>().stream, 0);
  EXPECT_EQ(graph.producer(graph.outputs[1].tensor).as<RandomAttrs>().stream, 1);
  ASSERT_EQ(graph.updates.size(), 1u);
  EXPECT_EQ(graph.tensor(graph.updates[0].target).name, random_state);
}

}  // namespace
}  // namespace jerboa::test
