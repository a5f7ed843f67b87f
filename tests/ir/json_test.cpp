#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

Graph full_graph() {
  Graph graph = trace([] {
    const Dim time = Dim::symbol("T", 32);
    const Tensor x = tensor_input("x", {time, 8});
    const Tensor w = param_input("w", {8, 8}, {.init = Init::uniform(0.5), .trainable = true, .decay = true});
    const Tensor frozen = param_input("tied", {8, 8}, {.trainable = false, .decay = false, .tied_to = "w"});
    const Tensor state = state_input("s", {}, DType::f32, Init::constant(2.5));
    const Tensor table = constant(HostTensor({2, 4}, {1, -2, 0.1f, 3e-30f, 1, 2, 3, 4}));
    const Tensor y = matmul(matmul(x, w), frozen) * state + reshape(table, {8});
    const Tensor padded = pad(y, {time, 0}, {0, 3}, -1.5);
    output("y", slice(padded, 0, time - 1, time + time, 2));
    update(state, state * 0.1);
    capture(rope(reshape(y, {1, 1, time, 8}), {}, {.dims = 4, .scaling = RopeScaling::linear, .factor = 2}), "turned");
  });
  graph.training = true;
  graph.nodes[8].recompute = true;
  return graph;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The error for a small valid graph in which one piece of text is replaced.
std::string message_with(const std::string& from, const std::string& to) {
  static const std::string text = to_json(trace([] {
    const Tensor x = tensor_input("x", {2, 3});
    output("y", sum(x + constant(HostTensor({3}, {1, 2, 3})), {1}));
  }));
  return test::message_of<GraphError>([&] { from_json(replaced(text, from, to)); });
}

TEST(Json, KeepsEverything) {
  const Graph graph = full_graph();
  const std::string text = to_json(graph);
  const Graph read = from_json(text);
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(print(read), print(graph));
  EXPECT_TRUE(read.training);
  EXPECT_TRUE(read.nodes[8].recompute);
  EXPECT_EQ(read.constants, graph.constants);
  EXPECT_EQ(read.tensor(read.find("w")).init, Init::uniform(0.5));
  EXPECT_TRUE(read.tensor(read.find("w")).trainable);
  EXPECT_FALSE(read.tensor(read.find("tied")).decay);
  EXPECT_EQ(read.tensor(read.find("tied")).tied_to, "w");
  EXPECT_NE(read.identity(), graph.identity());
}

TEST(Json, KeepsValuesThatNumbersCannotWrite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Graph graph = trace([&] { output("y", constant(HostTensor({3}, {infinity, -infinity, 1}))); });
  EXPECT_EQ(from_json(to_json(graph)).constants, graph.constants);
  const auto bounds = std::get<ClampAttrs>(attrs_from_json(Op::clamp, attrs_to_json(ClampAttrs{0, infinity})));
  EXPECT_EQ(bounds.max, infinity);
}

TEST(Json, RefusesMalformedText) {
  for (const char* text : {"", "{", "nonsense", "[1, 2"})
    test::expect_error<GraphError>([&] { from_json(text); }, "graph: not valid JSON");
  for (const char* text :
       {"{}", "[]", "3", "null", "{\"version\": 1}", "{\"version\": 1, \"tensors\": 3, \"nodes\": 4}"})
    EXPECT_THROW(from_json(text), GraphError) << text;
}

TEST(Json, RefusesAnotherVersion) {
  EXPECT_EQ(message_with("\"version\": 1", "\"version\": 99"), "made by another version of Jerboa");
}

TEST(Json, RefusesUnknownNames) {
  EXPECT_EQ(message_with("\"op\": \"sum\"", "\"op\": \"total\""), "unknown op total");
  EXPECT_EQ(message_with("\"dtype\": \"f32\"", "\"dtype\": \"f99\""), "unknown type f99");
  EXPECT_EQ(message_with("\"storage\": \"input\"", "\"storage\": \"cloud\""), "unknown storage \"cloud\"");
  EXPECT_EQ(message_with("\"axes\"", "\"axles\""), "sum has no attribute axles");
}

TEST(Json, RefusesAttributesOfAWrongKind) {
  EXPECT_EQ(attrs_to_json(attrs_from_json(Op::softmax, R"({"axis": 2})")), R"({"axis":2})");
  const auto message = [](Op op, const char* text) {
    return test::message_of<GraphError>([&] { attrs_from_json(op, text); });
  };
  EXPECT_EQ(message(Op::softmax, R"({"axis": 1.5})"), "softmax: axis must be a whole number, not 1.5");
  EXPECT_EQ(message(Op::softmax, R"({"axis": 1e99})"), "softmax: axis must be a whole number, not 1e+99");
  EXPECT_EQ(message(Op::softmax, R"({"axis": 4294967297})"), "softmax: axis must be a whole number, not 4294967297");
  EXPECT_EQ(message(Op::softmax, R"({"axis": "last"})"), "softmax: axis must be a whole number, not \"last\"");
  EXPECT_EQ(message(Op::sum, R"({"axes": 1})"), "sum: axes must be a list, not 1");
  EXPECT_EQ(message(Op::sum, R"({"keepdims": 1})"), "sum: keepdims must be true or false, not 1");
  EXPECT_EQ(message(Op::gelu, R"({"approximate": "erf"})"), "gelu: approximate must be one of none, tanh, not \"erf\"");
  EXPECT_EQ(message(Op::clamp, R"({"min": "low"})"), "clamp: min must be a number, not \"low\"");
  EXPECT_EQ(message(Op::cast, R"({"dtype": "int"})"), "cast: dtype must be a type such as f32, not \"int\"");
  EXPECT_EQ(message(Op::reshape, R"({"shape": ["T"]})"), "reshape: shape must be a size over known symbols, not \"T\"");
  EXPECT_EQ(message(Op::exp, "[]"), "exp: its attributes must be an object");
  EXPECT_EQ(message(Op::exp, "{"),
            "exp: its attributes: not valid JSON, at byte 1: syntax error while parsing object key - unexpected end of "
            "input; expected string literal");
}

TEST(Json, RefusesBrokenGraphs) {
  EXPECT_EQ(message_with("\"name\": \"x\"", "\"name\": \"sum_3\""), "two tensors are named sum_3");
  EXPECT_EQ(message_with("\"y\": 3", "\"y\": 17"), "invalid graph: output y uses tensor 17, which does not exist");
  EXPECT_EQ(message_with("\"outputs\": [\n    3\n   ]", "\"outputs\": [17]"),
            "sum writes tensor 17, which does not exist");
  EXPECT_EQ(message_with("\"axes\": [\n     1\n    ]", "\"axes\": [5]"),
            "graph: sum: axes 5 are out of range or repeated for [2, 3]");
}

TEST(Json, RefusesSizesThatTheValuesDoNotBearOut) {
  const std::string wrong = "a constant's shape does not match its values";
  const std::string values = "\"shape\": [\n    3\n   ],\n   \"values\"";
  EXPECT_EQ(message_with(values, "\"shape\": [4], \"values\""), wrong);
  EXPECT_EQ(message_with(values, "\"shape\": [-3], \"values\""), wrong);
  EXPECT_EQ(message_with(values, "\"shape\": [3, 1000000000000, 1000000000000], \"values\""), wrong);
  EXPECT_EQ(message_with(values, "\"shape\": [0, 1000000000000], \"values\""), wrong);
}

TEST(Json, RefusesSizesThatNoMachineHas) {
  const std::string message =
      message_with("\"shape\": [\n    2,\n    3\n   ]", "\"shape\": [1000000000000, 1000000000000]");
  EXPECT_NE(message, "");
}

}  // namespace
}  // namespace jerboa
