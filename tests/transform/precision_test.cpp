#include <gtest/gtest.h>

#include <jerboa/ops/ops.h>
#include <jerboa/transform/precision.h>

namespace jerboa {
namespace {

// A norm, a product with a bias, an activation, another product into a residual stream, and a loss.
Graph block() {
  return trace([] {
    const Tensor x = tensor_input("x", {4, 8});
    const Tensor normed = layer_norm(x, param_input("norm", {8}), param_input("norm_bias", {8})).named("normed");
    const Tensor hidden =
        (matmul(normed, param_input("up", {8, 16})).named("product") + param_input("bias", {16})).named("hidden");
    const Tensor stream = (x + matmul(gelu(hidden).named("active"), param_input("down", {16, 8}))).named("stream");
    output("loss", mean(cross_entropy(stream, tensor_input("targets", {4}, DType::i32))));
  });
}

DType type_of(const Graph& graph, const std::string& name) { return graph.type(graph.find(name)).dtype; }

TEST(MixedPrecision, NarrowsOnlyProductsAndTheirConsumers) {
  const Graph mixed = with_precision(block(), Precision::mixed_f16);
  verify(mixed);
  for (const char* name : {"product", "hidden", "active"}) EXPECT_EQ(type_of(mixed, name), DType::f16) << name;
  for (const char* name : {"x", "norm", "norm_bias", "up", "bias", "down", "normed", "stream"})
    EXPECT_EQ(type_of(mixed, name), DType::f32) << name;
  EXPECT_EQ(mixed.type(mixed.outputs[0].tensor).dtype, DType::f32);
  for (const Node& node : mixed.nodes) {
    if (node.op != Op::matmul) continue;
    for (const TensorId input : node.inputs) EXPECT_EQ(mixed.type(input).dtype, DType::f16);
  }
}

// The square of a result that f16 holds may be more than f16 holds.
TEST(MixedPrecision, ComputesInFullPrecisionWhatNoProductReads) {
  const Graph mixed = with_precision(
      trace([] {
        const Tensor product = matmul(tensor_input("x", {4, 8}), param_input("w", {8, 6})).named("product");
        const Tensor parts = unsqueeze(reshape(product, {2, 2, 6}), {0}).named("parts");
        const Tensor shifted = (parts + param_input("bias", {6})).named("shifted");
        const Tensor square = reshape((shifted * shifted).named("square"), {24}).named("squares");
        const Tensor active = gelu(product).named("active");
        output("next", matmul(active, param_input("v", {6, 3})));
        output("loss", mean(square) + mean(active));
      }),
      Precision::mixed_f16);
  verify(mixed);
  for (const char* name : {"product", "parts", "active"}) EXPECT_EQ(type_of(mixed, name), DType::f16) << name;
  for (const char* name : {"shifted", "square", "squares"}) EXPECT_EQ(type_of(mixed, name), DType::f32) << name;
}

TEST(MixedPrecision, KeepsInHalfPrecisionWhatIsRoundedToItAnyway) {
  for (const DType cache : {DType::f16, DType::f32}) {
    const Graph mixed = with_precision(
        trace([&] {
          const Tensor keys = rope(matmul(tensor_input("x", {1, 2, 4, 8}), param_input("w", {8, 8}))).named("keys");
          const Tensor kept = state_input("cache", {1, 2, 16, 8}, cache);
          update(kept, cache_append(kept, cast(keys, cache), tensor_input("positions", {1, 4}, DType::i32)));
        }),
        Precision::mixed_f16);
    verify(mixed);
    EXPECT_EQ(type_of(mixed, "keys"), cache);
  }
}

TEST(MixedPrecision, LeavesAGraphInFullPrecisionAsItIs) {
  const Graph graph = block();
  EXPECT_EQ(to_json(with_precision(graph, Precision::full)), to_json(graph));
}

TEST(MixedPrecision, KeepsTypesThatTheUserChose) {
  const Graph graph = trace([] {
    const Tensor wide = cast(tensor_input("x", {2, 4}), DType::bf16);
    output("product", matmul(wide, param_input("w", {4, 3}, {.dtype = DType::bf16})));
  });
  EXPECT_EQ(to_json(with_precision(graph, Precision::mixed_f16)), to_json(graph));
}

TEST(MixedPrecision, MultipliesWeightsThatAreStoredInF16AsTheyAre) {
  const Graph mixed = with_precision(trace([] {
                                       const Tensor w = param_input("w", {4, 3}, {.dtype = DType::f16});
                                       output("product", matmul(tensor_input("x", {2, 4}), cast(w, DType::f32)));
                                     }),
                                     Precision::mixed_f16);
  for (const Node& node : mixed.nodes)
    if (node.op == Op::matmul) {
      EXPECT_EQ(mixed.tensor(node.inputs[1]).name, "w");
    }
}

// The results of attention over a cache of f16, widened and with their heads merged.
TEST(MixedPrecision, MultipliesWidenedViewsAsTheyAreStored) {
  const Graph mixed =
      with_precision(trace([] {
                       const Tensor heads = tensor_input("heads", {1, 2, 3, 4}, DType::f16);
                       output("product", matmul(merge_heads(cast(heads, DType::f32)), param_input("w", {8, 5})));
                     }),
                     Precision::mixed_f16);
  for (const Node& node : mixed.nodes)
    if (node.op == Op::matmul) {
      TensorId operand = node.inputs[0];
      while (info(mixed.producer(operand).op).lowering == Lowering::View) operand = mixed.producer(operand).inputs[0];
      EXPECT_EQ(mixed.tensor(operand).name, "heads");
    }
}

// Adding -1e9 hides a key in f32; in f16 that would be an infinity.
TEST(MixedPrecision, KeepsMasksOfAttentionFinite) {
  const Graph graph = trace([] {
    const Shape shape{1, 2, 4, 8};
    output("out", attention(tensor_input("q", shape), tensor_input("k", shape), tensor_input("v", shape),
                            {.mask = tensor_input("mask", {4, 4})}));
  });
  const Graph mixed = with_precision(graph, Precision::mixed_f16);
  bool clamped = false;
  for (const Node& node : mixed.nodes) clamped |= node.op == Op::clamp && mixed.tensor(node.inputs[0]).name == "mask";
  EXPECT_TRUE(clamped);
  EXPECT_EQ(mixed.type(mixed.outputs[0].tensor).dtype, DType::f32);
}

}  // namespace
}  // namespace jerboa
