#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

// x, a parameter w with an update, a constant c, and y = x + w.
Graph sound_graph() {
  Graph graph;
  const TensorType type{DType::f32, {2, 3}};
  const TensorId x = graph.add_node(Op::tensor_input, {}, NoAttrs{}, "", &type, Storage::input).front();
  const TensorId w = graph.add_node(Op::param_input, {}, NoAttrs{}, "", &type, Storage::param).front();
  graph.constants.emplace_back(DType::f32, std::vector<std::int64_t>{2, 3});
  const TensorId c = graph.add_node(Op::constant, {}, ConstantAttrs{0}, "", &type, Storage::constant).front();
  const TensorId y = graph.add_node(Op::add, {x, w}, NoAttrs{}, "model.cpp:7").front();
  graph.rename(x, "x");
  graph.rename(w, "w");
  graph.rename(c, "c");
  graph.rename(y, "y");
  graph.outputs.push_back({"out", y});
  graph.captures.push_back({"seen", x});
  graph.updates.push_back({w, y});
  return graph;
}

constexpr TensorId x = 0, w = 1, c = 2, y = 3;

void expect_invalid(void (*damage)(Graph&), const std::string& message) {
  Graph graph = sound_graph();
  damage(graph);
  EXPECT_EQ(test::message_of<GraphError>([&] { verify(graph); }), "invalid graph: " + message);
}

TEST(Verifier, AcceptsASoundGraph) { EXPECT_NO_THROW(verify(sound_graph())); }

TEST(Verifier, ChecksNames) {
  expect_invalid([](Graph& g) { g.tensor(y).name = "x"; }, "two tensors are named x");
  expect_invalid([](Graph& g) { g.tensor(y).name = ""; }, "a tensor has no name");
  expect_invalid([](Graph& g) { g.outputs.push_back({"out", x}); }, "two outputs are named out");
  expect_invalid([](Graph& g) { g.captures.push_back({"seen", y}); }, "two captures are named seen");
}

TEST(Verifier, ChecksThatTensorsAreThere) {
  expect_invalid([](Graph& g) { g.nodes[3].inputs[1] = 9; }, "node 3 (add) uses tensor 9, which does not exist");
  expect_invalid([](Graph& g) { g.nodes[3].inputs[1] = -2; }, "node 3 (add) uses tensor -2, which does not exist");
  expect_invalid([](Graph& g) { g.nodes[3].outputs[0] = 9; }, "node 3 (add) uses tensor 9, which does not exist");
  expect_invalid([](Graph& g) { g.outputs[0].tensor = 4; }, "output out uses tensor 4, which does not exist");
  expect_invalid([](Graph& g) { g.captures[0].tensor = -1; }, "capture seen uses tensor -1, which does not exist");
  expect_invalid([](Graph& g) { g.updates[0].value = 7; }, "an update uses tensor 7, which does not exist");
}

TEST(Verifier, ChecksTheOrder) {
  expect_invalid(
      [](Graph& g) {
        std::swap(g.nodes[1], g.nodes[3]);
        g.tensor(y).producer = 1;
        g.tensor(w).producer = 3;
      },
      "node 1 (add) uses w before it is computed");
  expect_invalid([](Graph& g) { g.nodes[3].outputs = {x}; }, "node 3 (add) writes x again");
  expect_invalid([](Graph& g) { g.nodes[3].outputs.clear(); }, "node 3 (add) has no outputs");
  expect_invalid([](Graph& g) { g.tensor(y).producer = 0; }, "node 3 (add) is not the producer of y");
  expect_invalid(
      [](Graph& g) {
        g.outputs.clear();
        g.updates.clear();
        g.nodes.pop_back();
      },
      "nothing computes y");
}

TEST(Verifier, ChecksTypes) {
  expect_invalid([](Graph& g) { g.tensor(y).type.shape = {3, 2}; }, "node 3 (add) gives f32[2, 3], but y is f32[3, 2]");
  expect_invalid([](Graph& g) { g.tensor(y).type.dtype = DType::i32; },
                 "node 3 (add) gives f32[2, 3], but y is i32[2, 3]");
  expect_invalid(
      [](Graph& g) {
        g.nodes[3].outputs.push_back(4);
        g.tensors.push_back(g.tensor(y));
        g.tensors.back().name = "z";
      },
      "node 3 (add) has 1 outputs, not 2");
  Graph graph = sound_graph();
  graph.nodes[3].attrs = AxisAttrs{};
  test::expect_error<GraphError>([&] { verify(graph); }, "add: its attributes must be NoAttrs");
  graph = sound_graph();
  graph.nodes[3].inputs.pop_back();
  test::expect_error<GraphError>([&] { verify(graph); }, "add: takes 2 operands, not 1");
  graph = sound_graph();
  graph.nodes[3].inputs[1] = no_tensor;
  test::expect_error<GraphError>([&] { verify(graph); }, "add: the operand b is missing");
}

TEST(Verifier, ChecksConstants) {
  expect_invalid([](Graph& g) { g.nodes[2].attrs = ConstantAttrs{1}; }, "node 2 (constant) has no values");
  expect_invalid([](Graph& g) { g.nodes[2].attrs = ConstantAttrs{-1}; }, "node 2 (constant) has no values");
  expect_invalid([](Graph& g) { g.tensor(c).type.shape = {6}; },
                 "node 2 (constant) does not have the type of its values");
}

TEST(Verifier, ChecksLeaves) {
  expect_invalid([](Graph& g) { g.nodes[0].inputs = {w}; }, "node 0 (tensor_input) uses w before it is computed");
  expect_invalid([](Graph& g) { g.nodes[1].inputs = {x}; }, "node 1 (param_input) takes no operands");
  expect_invalid([](Graph& g) { g.nodes[2].attrs = NoAttrs{}; },
                 "the attributes of node 2 (constant) must be ConstantAttrs");
  expect_invalid([](Graph& g) { g.tensor(x).storage = Storage::activation; },
                 "node 0 (tensor_input) gives x, which is stored as activation");
  expect_invalid([](Graph& g) { g.tensor(y).storage = Storage::param; },
                 "node 3 (add) gives y, which is stored as param");
}

TEST(Verifier, ChecksUpdates) {
  expect_invalid([](Graph& g) { g.updates[0].target = x; }, "x is updated but is neither a parameter nor a state");
  expect_invalid([](Graph& g) { g.updates.push_back({w, x}); }, "w is updated twice");
  expect_invalid(
      [](Graph& g) {
        const TensorType type{DType::f32, {3}};
        const TensorId other = g.add_node(Op::tensor_input, {}, NoAttrs{}, "", &type, Storage::input).front();
        g.updates[0].value = other;
      },
      "w is f32[2, 3] but its update is f32[3]");
}

TEST(Verifier, ChecksSymbols) {
  Graph graph;
  for (const std::int64_t bound : {16, 8}) {
    const TensorType type{DType::f32, {Dim::symbol("T", bound)}};
    graph.add_node(Op::tensor_input, {}, NoAttrs{}, "", &type, Storage::input);
  }
  test::expect_error<GraphError>([&] { verify(graph); }, "symbol T is bounded by 16 and by 8");
}

}  // namespace
}  // namespace jerboa
