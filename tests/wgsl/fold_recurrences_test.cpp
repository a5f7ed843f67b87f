#include <array>
#include <functional>

#include "wgsl/folding.h"

// Layers of recurrent decoders that are fed one token, or a few: a product, linear attention, and a product.
namespace jerboa::test::fold_recurrences_test {
namespace {

constexpr int slots = 3;

struct Layer {
  int batch = 1, time = 1;
  DType weights = DType::f16;
  bool in_slots = false;  // the rows of the states are not those of the batch
  bool delta = false;     // the delta rule with norms of queries, keys and of each head's results
  int heads = 4, groups = 2, key_size = 16, value_size = 8;
  int width = 32;
};

// The states of a layer, and where its tokens are.
class States {
 public:
  explicit States(const Layer& layer) : layer_(layer) {
    positions_ = tensor_input("positions", {layer.batch, layer.time}, DType::i32);
    if (layer.in_slots) slots_ = tensor_input("slots", {layer.batch}, DType::i32);
  }
  RecurrentOptions options(const std::string& name, Shape shape) const {
    shape.insert(shape.begin(), layer_.in_slots ? slots : layer_.batch);
    return {.state = state_input(name, shape), .positions = positions_, .slots = slots_};
  }

 private:
  Layer layer_;
  Tensor positions_, slots_;
};

Tensor heads_of(const Tensor& x, int count) { return reshape(x, {x.dim(0), x.dim(1), count, -1}); }

Tensor convolved(const States& states, const std::string& name, const Tensor& x) {
  constexpr int taps = 4;
  const RecurrentOptions before = states.options(name, {taps - 1, x.dim(-1)});
  const Recurrent result = causal_conv1d(x, param_input(name + ".weight", {x.dim(-1), taps}), before);
  update(before.state, result.state);
  return result.y;
}

Tensor remembered(const States& states, const Layer& layer, const Tensor& q, const Tensor& k, const Tensor& v,
                  const Tensor& decay, const Tensor& beta) {
  const RecurrentOptions before = states.options("memory", {layer.heads, layer.key_size, layer.value_size});
  const Recurrent result = linear_attention(q, k, v, decay, beta ? Operand(beta) : Operand(), before);
  update(before.state, result.state);
  return result.y;
}

// Mamba-2's: one product gives everything, and the norm is over all heads.
Tensor state_space(const States& states, const Layer& layer, const Tensor& x) {
  const int inner = layer.heads * layer.value_size, addresses = layer.groups * layer.key_size;
  const Tensor all = linear("in", x, 2 * inner + 2 * addresses + layer.heads, layer.weights);
  const auto parts = split(all, {inner, inner + 2 * addresses, layer.heads});
  const Tensor bias = param_input("bias", {inner + 2 * addresses});
  const auto mixed = split(silu(convolved(states, "conv", parts[1]) + bias), {inner, addresses, addresses});
  const Tensor steps = softplus(parts[2] + param_input("step_bias", {layer.heads}));
  const Tensor values = heads_of(mixed[0], layer.heads);
  const Tensor y = remembered(states, layer, heads_of(mixed[2], layer.groups), heads_of(mixed[1], layer.groups),
                              values * unsqueeze(steps, {-1}), -(steps * exp(param_input("rates", {layer.heads}))), {});
  const Tensor skipped = y + values * unsqueeze(param_input("skip", {layer.heads}), {-1});
  const Tensor gated = reshape(skipped, {x.dim(0), x.dim(1), inner}) * silu(parts[0]);
  return linear("out", norm("norm", gated), layer.width, layer.weights);
}

// The gated delta rule's: a product for each operand, and norms of heads.
Tensor delta_rule(const States& states, const Layer& layer, const Tensor& x) {
  const int keys = layer.groups * layer.key_size, values = layer.heads * layer.value_size;
  const Tensor mixed = silu(convolved(states, "conv", linear("qkv", x, 2 * keys + values, layer.weights)));
  const Tensor gate = linear("gate", x, values, layer.weights);
  const Tensor beta = sigmoid(linear("beta", x, layer.heads, DType::f32));
  const Tensor steps = softplus(linear("steps", x, layer.heads, DType::f32));
  const auto parts = split(mixed, {keys, keys, values});
  const auto unit = [&](const Tensor& part) { return rms_norm(heads_of(part, layer.groups), {}, 1e-6) * 0.25; };
  const Tensor y = remembered(states, layer, unit(parts[0]), unit(parts[1]), heads_of(parts[2], layer.heads),
                              -(steps * exp(param_input("rates", {layer.heads}))), beta);
  const Tensor gated = norm("norm", y) * silu(heads_of(gate, layer.heads));
  return linear("out", reshape(gated, {x.dim(0), x.dim(1), values}), layer.width, layer.weights);
}

Graph graph_of(const Layer& layer) {
  return trace([&] {
    const States states(layer);
    const Tensor x = tensor_input("x", {layer.batch, layer.time, layer.width});
    const Tensor normed = norm("norm_before", x);
    output("y", x + (layer.delta ? delta_rule(states, layer, normed) : state_space(states, layer, normed)));
  });
}

// Sequences that continue, start, and have no new tokens.
TensorMap inputs_of_layer(const Graph& graph, const Layer& layer) {
  TensorMap inputs = inputs_of(graph);
  HostTensor positions(DType::i32, {layer.batch, layer.time}), rows(DType::i32, {layer.batch});
  for (int b = 0; b < layer.batch; ++b) {
    const int first = b == 0 ? 5 : b == 1 ? 0 : -1;
    for (int t = 0; t < layer.time; ++t) positions.set_number(b * layer.time + t, first < 0 ? -1 : first + t);
    rows.set_number(b, (b + 1) % slots);
  }
  inputs.emplace("positions", positions);
  if (layer.in_slots) inputs.emplace("slots", rows);
  return inputs;
}

void expect_layer(const Layer& layer, std::size_t wanted_dispatches) {
  const Graph graph = graph_of(layer);
  EXPECT_EQ(dispatches(graph, gpu_target(32)), wanted_dispatches);
  expect_reference_on(gpu(32), graph, inputs_of_layer(graph, layer), 3, 5e-5);
}

TEST(FoldingRecurrences, StateSpaceLayerIsThreeDispatches) {
  expect_layer({}, 3);
  expect_layer({.batch = 3, .in_slots = true}, 3);
}

TEST(FoldingRecurrences, DeltaRuleLayerIsThreeDispatches) {
  expect_layer({.delta = true}, 3);
  expect_layer({.batch = 3, .in_slots = true, .delta = true, .key_size = 20, .value_size = 16}, 3);
}

// Enough weights for the kernel of quantised products, each of whose threads finishes its own results.
TEST(FoldingRecurrences, FinishesProductsWithQuantisedWeights) {
  const Layer layer{.weights = DType::i4, .delta = true, .heads = 8, .width = 512};
  const Graph graph = graph_of(layer);
  EXPECT_EQ(dispatches(graph, gpu_target(32)), 4U) << "one more than with f16 weights: the products in f32";
  for (const int subgroup_size : {0, 32})
    expect_reference_on(gpu(subgroup_size), graph, inputs_of_layer(graph, layer), 2, 1e-4);
}

TEST(FoldingRecurrences, IsTheSameWithoutSubgroups) {
  const Layer layer{.batch = 2, .delta = true};
  const Graph graph = graph_of(layer);
  expect_reference_on(gpu(0), graph, inputs_of_layer(graph, layer), 2, 5e-5);
}

// Several tokens of a sequence depend on each other, so the convolution follows the product.
TEST(FoldingRecurrences, SeveralTokensNeedOneDispatchMore) {
  expect_layer({.time = 3}, 4);
  expect_layer({.batch = 2, .time = 2, .delta = true}, 4);
}

// The result of a recurrence that is read twice is stored.
TEST(FoldingRecurrences, ResultsThatAreReadTwiceStay) {
  const Layer layer;
  const Graph graph = trace([&] {
    const States states(layer);
    const Tensor y = convolved(states, "conv", linear("in", tensor_input("x", {1, 1, 32}), 24, DType::f16));
    output("y", silu(y));
    output("plain", y);
  });
  expect_reference_on(gpu(32), graph, inputs_of_layer(graph, layer), 2, 5e-5);
}

void expect_graph(const Layer& layer, std::size_t wanted_dispatches, const std::function<void(const States&)>& build) {
  const Graph graph = trace([&] { build(States(layer)); });
  EXPECT_EQ(dispatches(graph, gpu_target(32)), wanted_dispatches);
  expect_reference_on(gpu(32), graph, inputs_of_layer(graph, layer), 3, 5e-5);
}

Tensor product_of(const Layer& layer, const std::string& name, int out) {
  return linear(name, tensor_input("x of " + name, {layer.batch, layer.time, layer.width}), out, layer.weights);
}

// A product that finishes each element by itself has no other for the loop behind the convolution.
TEST(FoldingRecurrences, FollowersMayReadTheProductToo) {
  for (const int batch : {1, 3}) {
    const Layer layer{.batch = batch};
    expect_graph(layer, 3, [&](const States& states) {
      const auto parts = split(product_of(layer, "in", 64), {32, 32});
      output("y", linear("out", silu(convolved(states, "conv", parts[0])) * parts[1], 8, layer.weights));
    });
    expect_graph(layer, 3, [&](const States& states) {
      const Tensor x = product_of(layer, "in", 32);
      output("y", linear("out", convolved(states, "conv", x) + x, 8, layer.weights));
    });
  }
}

// The rows past the last sequence have no state.
TEST(FoldingRecurrences, ConvolutionsOfSomeRowsFollowTheProduct) {
  const Layer layer{.batch = 2}, rows{.batch = 4};
  expect_graph(layer, 3, [&](const States& states) {
    output("y", silu(convolved(states, "conv", slice(product_of(rows, "in", 24), 0, 0, 2))));
  });
}

// Both have the same kernels, but the second product is stored as well.
TEST(FoldingRecurrences, ProductsThatAreReadTwiceAreStored) {
  const Layer layer;
  expect_graph(layer, 3, [&](const States& states) {
    output("a", silu(convolved(states, "conv a", product_of(layer, "in a", 32))));
    const Tensor x = product_of(layer, "in b", 32);
    output("b", silu(convolved(states, "conv b", x)));
    output("c", linear("out", x, 8, layer.weights));
  });
}

// Linear attention of one token whose operands are given.
void expect_attention(const Layer& layer, std::size_t wanted_dispatches,
                      const std::function<std::array<Tensor, 3>()>& operands) {
  expect_graph(layer, wanted_dispatches, [&](const States& states) {
    const auto [q, k, v] = operands();
    output("y", remembered(states, layer, q, k, v, -exp(tensor_input("decay", {layer.batch, 1, layer.heads})), {}));
  });
}

// Results that are computed in rows may be read across rows, or from the middle of one to the middle of the next.
TEST(FoldingRecurrences, RowsAreThoseOfTheOperand) {
  const Layer layer{.heads = 8, .groups = 8, .key_size = 8, .value_size = 8};
  const auto input = [](const char* name, int heads = 8) { return tensor_input(name, {1, 1, heads, 8}); };
  const auto computed = [&](const char* name, int heads = 8) {
    return norm(std::string(name) + ".norm", input(name, heads));
  };
  expect_attention(layer, 1, [&] { return std::array{computed("q"), input("k"), exp(input("v"))}; });
  expect_attention(layer, 2, [&] { return std::array{swap_axes(computed("q"), 2, 3), input("k"), input("v")}; });
  expect_attention(layer, 2, [&] {
    return std::array{input("q"), reshape(slice(reshape(computed("k", 9), {1, 1, 72}), 2, 4, 68), {1, 1, 8, 8}),
                      input("v")};
  });
  expect_attention(layer, 1, [&] {
    const Tensor v = exp(input("v") * tensor_input("factors", {8}));
    return std::array{input("q"), input("k"), swap_axes(v, 2, 3)};
  });
}

}  // namespace
}  // namespace jerboa::test::fold_recurrences_test
