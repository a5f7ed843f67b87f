#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "wgsl/shared_device.h"

// Kernels that others compute along the way, and independent ones that share a dispatch: the layers of a decoder that
// is fed one token. Results are those of the reference, from as many dispatches as there should be.
namespace jerboa {
namespace {

// The kernels for GPUs, whatever the driver.
Target gpu_target(int subgroup_size = 0) {
  Target target = Target::webgpu_default();
  target.max_bindings = 16;
  target.subgroup_size = subgroup_size;
  return target;
}

// With subgroups of the size that the device has, up to 32, or without.
const Device& gpu(int subgroup_size) {
  return test::shared_device(subgroup_size, [](int size) { return WebGpuOptions{.target = gpu_target(size)}; });
}

std::size_t dispatches(const Graph& graph, const Target& target = gpu_target()) {
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  return program.gpu.steps.size();
}

HostTensor random_values(DType dtype, const Sizes& shape, std::uint64_t seed) {
  HostTensor values(dtype, shape);
  SplitMix random(seed);
  const double spread = bits(dtype) < 16 ? 14 : 1;
  for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, (random.uniform() - 0.5) * spread);
  return values;
}

// Runs an entry several times, for graphs that update states, on both devices from the same random parameters.
void expect_reference_on(const Device& device, const Graph& graph, const TensorMap& inputs, int runs,
                         double tolerance) {
  Session ours(device), wanted(Device::reference());
  std::uint64_t seed = 1;
  for (Session* session : {&ours, &wanted}) session->add_entry("run", graph);
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param) continue;
    const HostTensor values = random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++);
    for (Session* session : {&ours, &wanted}) session->upload_param(tensor.name, values.bytes());
  }
  for (int run = 0; run < runs; ++run) {
    const Result result = ours.run("run", inputs), reference = wanted.run("run", inputs);
    for (const std::string& name : result.names()) {
      const HostTensor computed = result.get(name), expected = reference.get(name);
      ASSERT_EQ(computed.shape(), expected.shape());
      for (std::int64_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(computed.number(i), expected.number(i), tolerance * (1 + std::abs(expected.number(i))))
            << name << " " << i << " of run " << run;
    }
  }
}

void expect_reference(const Graph& graph, const TensorMap& inputs, int runs = 1, double tolerance = 2e-5) {
  for (const int subgroup_size : {0, 32}) {
    SCOPED_TRACE(subgroup_size);
    expect_reference_on(gpu(subgroup_size), graph, inputs, runs, tolerance);
  }
}

// Without subgroups, drivers on the CPU take long to compile attention, which then exchanges values behind barriers.
void expect_reference_with_subgroups(const Graph& graph, const TensorMap& inputs, int runs, double tolerance = 2e-5) {
  expect_reference_on(gpu(32), graph, inputs, runs, tolerance);
}

Tensor linear(const std::string& name, const Tensor& x, std::int64_t out, DType dtype) {
  const Tensor weight = param_input(name, {out, x.dim(-1)}, {.trainable = false, .dtype = dtype});
  return matmul(x, cast(weight, DType::f32), {.transpose_b = true});
}

Tensor norm(const std::string& name, const Tensor& x) { return rms_norm(x, param_input(name, {x.dim(-1)}), 1e-5); }

TensorMap inputs_of(const Graph& graph) {
  TensorMap inputs;
  std::uint64_t seed = 100;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::input && is_float(tensor.type.dtype))
      inputs.emplace(tensor.name, random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++));
  return inputs;
}

class Folding : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Weights, Folding, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& weights) { return std::string(name(weights.param)); });

// The norm is computed by each of the products, which share a dispatch.
TEST_P(Folding, NormAndThreeProductsAreOneDispatch) {
  for (const std::int64_t rows : {1, 2}) {
    const Graph graph = trace([&] {
      const Tensor x = norm("norm", tensor_input("x", {1, rows, 104}));
      output("q", linear("q", x, 36, GetParam()));
      output("k", linear("k", x, 21, GetParam()));
      output("v", linear("v", x, 8, GetParam()));
    });
    EXPECT_EQ(dispatches(graph), 1u);
    EXPECT_EQ(dispatches(graph, gpu_target(32)), 1u);
    expect_reference(graph, inputs_of(graph));
  }
}

// Norm, gate and up are one; down and the residual the other.
TEST_P(Folding, GatedLayerIsTwoDispatches) {
  for (const std::int64_t rows : {1, 3}) {
    const Graph graph = trace([&] {
      const Tensor x = tensor_input("x", {1, rows, 72});
      const Tensor y = norm("norm", x);
      const Tensor gate = silu(linear("gate", y, 40, GetParam()));
      const Tensor up = linear("up", y, 40, GetParam());
      output("y", x + linear("down", gate * up, 72, GetParam()));
    });
    EXPECT_EQ(dispatches(graph), 2u);
    expect_reference(graph, inputs_of(graph));
  }
}

// What others read too is computed once, by itself.
TEST_P(Folding, ResultsThatAreReadOtherwiseStay) {
  const Graph graph = trace([&] {
    const Tensor x = tensor_input("x", {1, 1, 64});
    const Tensor y = norm("norm", x);
    const Tensor gate = linear("gate", y, 64, GetParam());
    output("y", linear("up", y, 64, GetParam()) * gate);
    output("gate", gate);
    output("normed", y);
  });
  expect_reference(graph, inputs_of(graph));
}

// A norm with an offset is not a product of factors.
TEST_P(Folding, LayerNormStaysOnItsOwn) {
  const Graph graph = trace([&] {
    const Tensor x = tensor_input("x", {1, 1, 64});
    const Tensor y = layer_norm(x, param_input("weight", {64}), param_input("bias", {64}));
    output("y", linear("w", y, 24, GetParam()));
  });
  EXPECT_EQ(dispatches(graph), 2u);
  expect_reference(graph, inputs_of(graph));
}

// Rows of int4 and int8 weights, some of which leave threads without work.
TEST(FoldingQuantised, NormAndThreeProductsAreOneDispatch) {
  struct Trial {
    DType weights;
    std::int64_t inner, rows;
  };
  for (const Trial& trial : {Trial{DType::i4, 1024, 1}, Trial{DType::i4, 416, 2}, Trial{DType::i8, 416, 1}}) {
    const Graph graph = trace([&] {
      const Tensor x = norm("norm", tensor_input("x", {1, trial.rows, trial.inner}));
      for (const char* name : {"q", "k", "v"}) {
        const std::string of(name);
        const Tensor weight = param_input(of, {96, trial.inner}, {.trainable = false, .dtype = trial.weights});
        const Tensor scales = param_input(of + "_scales", {96, trial.inner / 32}),
                     mins = param_input(of + "_mins", {96, trial.inner / 32});
        output(of, matmul_quantised(x, weight, scales, mins));
      }
    });
    EXPECT_EQ(dispatches(graph), 1u);
    EXPECT_EQ(dispatches(graph, gpu_target(32)), 1u);
    expect_reference(graph, inputs_of(graph), 1, 2e-4);
  }
}

// The same with a gate, which the product that reads it computes: of weights with minimums and without.
TEST(FoldingQuantised, GatedLayerIsTwoDispatches) {
  for (const bool mins : {false, true}) {
    const Graph graph = trace([&] {
      const Tensor x = norm("norm", tensor_input("x", {1, 1, 416}));
      const auto product = [&](const std::string& name) {
        const Tensor weight = param_input(name, {96, 416}, {.trainable = false, .dtype = DType::i4});
        const Tensor scales = param_input(name + "_scales", {96, 13});
        return matmul_quantised(x, weight, scales, mins ? Operand(param_input(name + "_mins", {96, 13})) : Operand());
      };
      const Tensor gate = silu(product("gate"));
      output("y", linear("down", gate * product("up"), 16, DType::f16));
    });
    EXPECT_EQ(dispatches(graph), 2u);
    EXPECT_EQ(dispatches(graph, gpu_target(32)), 2u);
    expect_reference(graph, inputs_of(graph), 1, 2e-4);
  }
}

struct Attending {
  bool head_norm = false;
  DType cache = DType::f32;
  bool ring = false;
  int block = 0;  // of a paged cache
  int time = 1;
  int first_position = 0;
  int heads = 4;
};

constexpr int cache_keys = 72, ring_keys = 64;

Graph attention_graph(const Attending& form) {
  return trace([&] {
    const Tensor x = tensor_input("x", {1, form.time, 64});
    const Tensor position = state_input("position", {1, form.time}, DType::i32, Init::constant(form.first_position));
    const Tensor length = state_input("length", {1}, DType::i32, Init::constant(form.first_position + 1));
    const Tensor table = form.block > 0 ? tensor_input("table", {1, cache_keys / form.block}, DType::i32) : Tensor();
    const Tensor products[] = {linear("q", x, form.heads * 16, DType::f16), linear("k", x, 32, DType::f16),
                               linear("v", x, 32, DType::f16)};
    const auto rotated = [&](const std::string& name, const Tensor& product, int count) {
      const Tensor heads = split_heads(product, count);
      return rope(form.head_norm ? norm(name + "_norm", heads) : heads, position);
    };
    const Tensor q = rotated("q", products[0], form.heads), k = rotated("k", products[1], 2),
                 v = split_heads(products[2], 2);
    const auto cached = [&](const std::string& name, const Tensor& values) {
      const Shape shape = form.block > 0 ? Shape{cache_keys / form.block + 1, 2, form.block, 16}
                                         : Shape{1, 2, form.ring ? ring_keys : cache_keys, 16};
      const Tensor cache = state_input(name, shape, form.cache);
      const Tensor next = cache_append(cache, cast(values, form.cache), position, {.ring = form.ring, .table = table});
      update(cache, next);
      return next;
    };
    const Tensor keys = cached("cache.k", k), values = cached("cache.v", v);
    const Tensor seen = attention(cast(q, form.cache), keys, values,
                                  {.causal = true,
                                   .window = form.ring ? ring_keys : 0,
                                   .ring = form.ring,
                                   .lengths = length,
                                   .positions = position,
                                   .table = table});
    output("y", linear("o", cast(merge_heads(seen), DType::f32), 64, DType::f16));
    update(position, position + form.time);
    update(length, length + form.time);
  });
}

TensorMap attention_inputs(const Graph& graph, const Attending& form) {
  TensorMap inputs = inputs_of(graph);
  if (form.block == 0) return inputs;
  const std::int64_t blocks = cache_keys / form.block;
  HostTensor table(DType::i32, {1, blocks});
  for (std::int64_t i = 0; i < blocks; ++i) table.set_number(i, static_cast<double>(blocks - i));
  inputs.emplace("table", table);
  return inputs;
}

// Rotation of neighbours takes two loops, the second of which works in place: the append can compute only that one.
TEST(FoldingAppend, LeavesTheLoopThatThePreviousOneReads) {
  for (const std::int64_t time : {1, 3}) {
    const Graph graph = trace([&] {
      const Tensor position = tensor_input("position", {1, time}, DType::i32);
      const Tensor keys = split_heads(linear("k", tensor_input("x", {1, time, 40}), 32, DType::f32), 2);
      const Tensor cache = state_input("cache", {1, 2, 8, 16});
      const Tensor next = cache_append(cache, rope(keys, position, {.interleaved = true}), position);
      update(cache, next);
      output("y", next * 1.0);
    });
    TensorMap inputs = inputs_of(graph);
    HostTensor position(DType::i32, {1, time});
    for (std::int64_t t = 0; t < time; ++t) position.set_number(t, static_cast<double>(2 + t));
    inputs.emplace("position", position);
    expect_reference(graph, inputs);
  }
}

// One dispatch normalises and rotates queries and keys, puts keys and values into their caches and attends.
TEST(FoldingAttention, HeadNormsRotationAndAppendsArePartOfAttention) {
  for (const Attending& form :
       {Attending{.first_position = 30}, Attending{.head_norm = true, .ring = true, .first_position = ring_keys - 4},
        Attending{.head_norm = true, .block = 4}}) {
    const Graph graph = attention_graph(form);
    expect_reference_with_subgroups(graph, attention_inputs(graph, form), 8);
    // Products, attention in two parts, their sum and the output. One for the angles, one for the states.
    EXPECT_EQ(dispatches(graph), 6u);
    EXPECT_EQ(dispatches(graph, gpu_target(32)), 6u);
  }
}

TEST(FoldingAttention, IsTheSameWithoutSubgroups) {
  const Attending form{.head_norm = true, .first_position = 30};
  const Graph graph = attention_graph(form);
  expect_reference(graph, attention_inputs(graph, form), 3);
}

TEST(FoldingAttention, AppendsToCachesOfF16) {
  for (const int block : {0, 8}) {
    const Attending form{.head_norm = true, .cache = DType::f16, .block = block};
    const Graph graph = attention_graph(form);
    expect_reference_with_subgroups(graph, attention_inputs(graph, form), 8, 2e-3);
    EXPECT_EQ(dispatches(graph), 6u);
  }
}

// A token of padding, whose position is negative, is not put anywhere, and one past the end of the cache neither.
TEST(FoldingAttention, DropsWhatHasNoPlaceInTheCache) {
  for (const int block : {0, 4})
    for (const int first : {-3, cache_keys - 2}) {
      const Attending form{.head_norm = true, .block = block, .first_position = first};
      const Graph graph = attention_graph(form);
      if (block == 0 || first < 0) expect_reference_with_subgroups(graph, attention_inputs(graph, form), 6);
      EXPECT_EQ(dispatches(graph), 6u);
    }
}

// With several tokens, or more queries of a key head than a workgroup has, appends precede attention.
TEST(FoldingAttention, AppendsComeFirstWhereSeveralWorkgroupsReadAKey) {
  for (const Attending& form : {Attending{.head_norm = true, .time = 2}, Attending{.head_norm = true, .heads = 24}})
    EXPECT_GT(dispatches(attention_graph(form)), 6u);
}

}  // namespace
}  // namespace jerboa
