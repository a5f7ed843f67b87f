#include <gtest/gtest.h>

#include <jerboa/ops/ops.h>

// Graphs as listings and in Graphviz.
namespace jerboa {
namespace {

Graph small_graph() {
  return trace([] {
    const Dim time = Dim::symbol("T", 32);
    const Tensor x = tensor_input("x", {time, 8}, DType::f32, "src/model.cpp", 3);
    const Tensor w = param_input("layer.weight", {4, 8}, {.init = Init::normal(0.1)}, "src/model.cpp", 4);
    const Tensor count = state_input("count", {}, DType::i32, Init::zeros(), "src/model.cpp", 5);
    const SiteScope scope(CallSite{"src/model.cpp", 6});
    const Tensor h = matmul(x, w, {.transpose_b = true}).named("hidden");
    const Tensor norm = layer_norm(h, {}, {}, 0.5).named("norm");
    output("y", capture(norm, "seen"));
    update(count, (count + 1).named("next"));
  });
}

TEST(Print, ReadsLikeAListing) {
  EXPECT_EQ(print(small_graph()),
            R"(symbol T <= 32
x               tensor_input -> f32[T, 8]  (model.cpp:3)
layer.weight    param_input -> f32[4, 8]  (model.cpp:4)
count           state_input -> i32[]  (model.cpp:5)
hidden          matmul [x, layer.weight] {"transpose_b":true} -> f32[T, 4]  (model.cpp:6)
norm            layer_norm [hidden, -, -] {"eps":0.5} -> f32[T, 4]  (model.cpp:6)
const_scalar_5  const_scalar {"value":1.0,"dtype":"i32"} -> i32[]  (model.cpp:6)
next            add [count, const_scalar_5] -> i32[]  (model.cpp:6)
output y = norm
capture seen = norm
update count <- next
)");
}

TEST(Dot, DrawsNodesEdgesAndUpdates) {
  EXPECT_EQ(to_dot(small_graph()),
            R"(digraph jerboa {
  rankdir=TB;
  node [shape=box, fontname="monospace"];
  n0 [label="x\ntensor_input\nf32[T, 8]", style=filled, fillcolor=lightgrey];
  n1 [label="layer.weight\nparam_input\nf32[4, 8]", style=filled, fillcolor=lightgrey];
  n2 [label="count\nstate_input\ni32[]", style=filled, fillcolor=lightgrey];
  n3 [label="hidden\nmatmul\nf32[T, 4]"];
  n0 -> n3;
  n1 -> n3;
  n4 [label="norm\nlayer_norm\nf32[T, 4]"];
  n3 -> n4;
  n5 [label="const_scalar_5\nconst_scalar\ni32[]"];
  n6 [label="next\nadd\ni32[]"];
  n2 -> n6;
  n5 -> n6;
  n6 -> n2 [style=dashed, constraint=false];
}
)");
}

TEST(Dot, EscapesNames) {
  const Graph graph = trace([] { tensor_input("a\"b\\c", {1}); });
  EXPECT_NE(to_dot(graph).find(R"(label="a\"b\\c\n)"), std::string::npos);
}

TEST(Attributes, AreWrittenWholeOrWhereTheyDiffer) {
  EXPECT_EQ(attrs_to_json(SliceAttrs{1, 2, 5, 1}, false), R"({"axis":1,"start":2,"end":5})");
  EXPECT_EQ(attrs_to_json(MatmulAttrs{}), R"({"transpose_a":false,"transpose_b":false})");
  EXPECT_TRUE(same_attrs(AxisAttrs{1}, AxisAttrs{1}));
  EXPECT_FALSE(same_attrs(AxisAttrs{1}, AxisAttrs{2}));
  EXPECT_FALSE(same_attrs(AxisAttrs{1}, ArgmaxAttrs{1}));
}

}  // namespace
}  // namespace jerboa
