#include <gtest/gtest.h>

#include <jerboa/ops/ops.h>
#include <jerboa/transform/decompose.h>

namespace jerboa {
namespace {

TEST(Decompose, LeavesNoOpThatDecomposes) {
  const Graph graph = decompose(trace([] {
    const Tensor x = tensor_input("x", {2, 3, 4});
    output("y", mean(swiglu(x, layer_norm(x))) + sum(causal_softmax(x)));
  }));
  for (const Node& node : graph.nodes) EXPECT_NE(info(node.op).lowering, Lowering::Decompose) << name(node.op);
}

TEST(Decompose, KeepsEverythingElse) {
  Graph graph = trace([] {
    const Tensor x = tensor_input("x", {2, 3});
    const Tensor w = param_input("w", {3}, {.init = Init::normal(2), .trainable = true, .decay = true});
    const Tensor s = state_input("s", {}, DType::f32, Init::constant(3));
    const Tensor y = mean(x * w).named("loss");
    output("out", y);
    capture(squeeze(unsqueeze(x, {0}), {0}), "seen");
    update(s, s + y);
  });
  graph.training = true;
  const Graph simple = decompose(graph);
  EXPECT_TRUE(simple.training);
  const TensorInfo& w = simple.tensor(simple.find("w"));
  EXPECT_EQ(w.init, Init::normal(2));
  EXPECT_TRUE(w.trainable && w.decay);
  EXPECT_EQ(simple.tensor(simple.find("s")).init, Init::constant(3));
  EXPECT_EQ(simple.tensor(simple.outputs.at(0).tensor).name, "loss");
  EXPECT_EQ(simple.captures.at(0).name, "seen");
  EXPECT_EQ(simple.updates.at(0).target, simple.find("s"));
  for (const Node& node : simple.nodes) EXPECT_FALSE(node.site.empty()) << name(node.op);
}

// Ops inside a decomposition get names like sum_1; an input of that name still keeps it.
TEST(Decompose, KeepsTheNamesOfInputs) {
  const Graph graph = trace([] {
    const Tensor y = mean(tensor_input("x", {2}));
    output("y", y + tensor_input("sum_1", {}) + param_input("div_3", {}));
  });
  const Graph simple = decompose(graph);
  for (const char* name : {"x", "sum_1", "div_3"}) {
    ASSERT_NE(simple.find(name), no_tensor) << name;
    EXPECT_NE(simple.tensor(simple.find(name)).storage, Storage::activation) << name;
  }
}

TEST(Decompose, TellsWhereTensorsWent) {
  TensorId x = no_tensor, same = no_tensor, total = no_tensor;
  const Graph graph = trace([&] {
    const Tensor in = tensor_input("x", {2, 3});
    x = in.id();
    same = apply(Op::sum_to_shape, {in}, ShapeAttrs{{2, 3}})[0].id();
    total = mean(in).named("total").id();
  });
  std::vector<TensorId> moved;
  const Graph simple = decompose(graph, &moved);
  ASSERT_EQ(moved.size(), graph.tensors.size());
  const auto name_of = [&](TensorId id) { return simple.tensor(moved[static_cast<std::size_t>(id)]).name; };
  EXPECT_EQ(name_of(x), "x");
  EXPECT_EQ(name_of(same), "x");  // it is the operand itself
  EXPECT_EQ(name_of(total), "total");
}

}  // namespace
}  // namespace jerboa
