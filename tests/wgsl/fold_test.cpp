#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/ir/packed_cache.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "wgsl/folding.h"

// Kernels that other kernels compute along the way, and independent ones that share a dispatch: the layers of a decoder
// that reads one token. Checks the results against the reference, and the number of dispatches.
namespace jerboa::test::fold_test {
namespace {

class Folding : public testing::TestWithParam<DType> {};
std::string name_of(const testing::TestParamInfo<DType>& weights) { return std::string(name(weights.param)); }
INSTANTIATE_TEST_SUITE_P(Weights, Folding, testing::Values(DType::f16), name_of);
INSTANTIATE_TEST_SUITE_P(OtherForms, Folding, testing::Values(DType::f32, DType::bf16), name_of);

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

// Norm, gate and up are one dispatch; down and the residual are the other.
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

// Workgroups of 256 threads need too much where each has the sums of four rows of both products.
TEST(GatedLayers, FitTheWorkgroupMemory) {
  for (const int subgroup_size : {0, 32})
    for (const int rows : {1, 2, 3, 4}) {
      const Graph graph = trace([&] {
        const Tensor x = norm("norm", tensor_input("x", {rows, 4096}));
        const Tensor gate = silu(linear("gate", x, 14336, DType::f16));
        const Tensor up = linear("up", x, 14336, DType::f16);
        output("y", linear("down", gate * up, 1024, DType::f16));
      });
      const Target target = gpu_target(subgroup_size);
      ASSERT_EQ(target.workgroup_bytes, 16384);
      Program program = lower(graph, target);
      emit_wgsl(program, target);
      ASSERT_EQ(program.gpu.steps.size(), 2U);
      EXPECT_LE(program.gpu.shaders[0].workgroup_bytes, target.workgroup_bytes) << rows << " " << subgroup_size;
    }
}

// Results that others read, too, are computed once, by themselves.
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
struct QuantisedRows {
  DType weights;
  std::int64_t inner, rows;
};
class FoldingQuantisedNorm : public testing::TestWithParam<QuantisedRows> {};
std::string name_of_rows(const testing::TestParamInfo<QuantisedRows>& rows) {
  return fmt::format("{}_{}_{}", name(rows.param.weights), rows.param.inner, rows.param.rows);
}
INSTANTIATE_TEST_SUITE_P(Weights, FoldingQuantisedNorm, testing::Values(QuantisedRows{DType::i4, 416, 2}),
                         name_of_rows);
INSTANTIATE_TEST_SUITE_P(OtherForms, FoldingQuantisedNorm,
                         testing::Values(QuantisedRows{DType::i4, 1024, 1}, QuantisedRows{DType::i8, 416, 1}),
                         name_of_rows);

TEST_P(FoldingQuantisedNorm, AndThreeProductsAreOneDispatch) {
  const auto [weights, inner, rows] = GetParam();
  const Shape groups{96, inner / 32};
  const Graph graph = trace([&, weights = weights, inner = inner, rows = rows] {
    const Tensor x = norm("norm", tensor_input("x", {1, rows, inner}));
    for (const char* name : {"q", "k", "v"}) {
      const std::string of(name);
      const Tensor weight = param_input(of, {96, inner}, {.trainable = false, .dtype = weights});
      const Tensor scales = param_input(of + "_scales", groups), mins = param_input(of + "_mins", groups);
      output(of, matmul_quantised(x, weight, scales, mins));
    }
  });
  EXPECT_EQ(dispatches(graph), 1u);
  EXPECT_EQ(dispatches(graph, gpu_target(32)), 1u);
  expect_reference(graph, inputs_of(graph), 1, 2e-4);
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
  int size = 16;       // of a head
  bool gated = false;  // results are multiplied by a gate, which the product of queries gives
};

constexpr int cache_keys = 72, ring_keys = 64;

Graph attention_graph(const Attending& form) {
  return trace([&] {
    const Tensor x = tensor_input("x", {1, form.time, 64});
    const Tensor position = state_input("position", {1, form.time}, DType::i32, Init::constant(form.first_position));
    const Tensor length = state_input("length", {1}, DType::i32, Init::constant(form.first_position + 1));
    const Tensor table = form.block > 0 ? tensor_input("table", {1, cache_keys / form.block}, DType::i32) : Tensor();
    const Tensor given = linear("q", x, (form.gated ? 2 : 1) * form.heads * form.size, DType::f16);
    const Dim half = form.heads * form.size;
    const auto gated = form.gated ? split(given, {half, half}) : std::vector{given};
    const Tensor products[] = {gated[0], linear("k", x, 2 * form.size, DType::f16),
                               linear("v", x, 2 * form.size, DType::f16)};
    const auto rotated = [&](const std::string& name, const Tensor& product, int count) {
      const Tensor heads = split_heads(product, count);
      return rope(form.head_norm ? norm(name + "_norm", heads) : heads, position);
    };
    const Tensor q = rotated("q", products[0], form.heads), k = rotated("k", products[1], 2),
                 v = split_heads(products[2], 2);
    const auto cached = [&](const std::string& name, const Tensor& values) {
      const bool packed = form.cache == packed_cache;
      const std::int64_t size = packed ? packed_words(form.size) : form.size;
      const Shape shape = form.block > 0 ? Shape{cache_keys / form.block + 1, 2, form.block, size}
                                         : Shape{1, 2, form.ring ? ring_keys : cache_keys, size};
      const Tensor cache = state_input(name, shape, form.cache);
      const Tensor stored = packed ? values : cast(values, form.cache);
      const Tensor next = cache_append(cache, stored, position, {.ring = form.ring, .table = table});
      update(cache, next);
      return next;
    };
    const Tensor keys = cached("cache.k", k), values = cached("cache.v", v);
    const Tensor seen = attention(form.cache == packed_cache ? q : cast(q, form.cache), keys, values,
                                  {.causal = true,
                                   .window = form.ring ? ring_keys : 0,
                                   .ring = form.ring,
                                   .lengths = length,
                                   .positions = position,
                                   .table = table});
    Tensor merged = cast(merge_heads(seen), DType::f32);
    if (form.gated) merged = merged * sigmoid(gated[1]);
    output("y", linear("o", merged, 64, DType::f16));
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

// Values that are rounded to 8 bits are computed first; a byte may be rounded to the other neighbour.
TEST(FoldingAttention, AppendsToCachesIn8BitsComeFirst) {
  for (const int block : {0, 8}) {
    const Attending form{.head_norm = true, .cache = packed_cache, .block = block};
    const Graph graph = attention_graph(form);
    expect_reference_with_subgroups(graph, attention_inputs(graph, form), 8, 5e-3);
    EXPECT_GT(dispatches(graph), 6u);
  }
}

// The rows of a norm are not those of queries that are read across them.
TEST(FoldingAttention, LeavesQueriesThatAreReadAcrossTheirRows) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {1, 16, 1, 16}), k = tensor_input("k", {1, 16, 40, 16});
    output("y", attention(swap_axes(norm("norm", x), 1, 3), k, tensor_input("v", {1, 16, 40, 16})));
  });
  expect_reference_with_subgroups(graph, inputs_of(graph), 1);
}

// Threads have eight features each of large heads, and gates of the results are part of attention too.
TEST(FoldingAttention, LargeHeadsWithGatesAreTheSame) {
  const Attending form{
      .head_norm = true, .cache = DType::f16, .first_position = 30, .heads = 8, .size = 256, .gated = true};
  const Graph graph = attention_graph(form);
  expect_reference_with_subgroups(graph, attention_inputs(graph, form), 3, 5e-3);
  EXPECT_EQ(dispatches(graph, gpu_target(32)), 6u);
}

// A padding token, whose position is negative, is not stored, nor is one past the end of the cache.
TEST(FoldingAttention, DropsTokensWithoutAPlaceInTheCache) {
  for (const int block : {0, 4})
    for (const int first : {-3, cache_keys - 2}) {
      const Attending form{.head_norm = true, .block = block, .first_position = first};
      const Graph graph = attention_graph(form);
      if (block == 0 || first < 0) expect_reference_with_subgroups(graph, attention_inputs(graph, form), 6);
      EXPECT_EQ(dispatches(graph), 6u);
    }
}

// A step whose caches, or parts of them, are read as keys and values. `read` makes these of a cache after the append.
template <class Read>
Graph cache_graph(int cache_heads, int caches, const Read& read) {
  return trace([&] {
    const Tensor x = tensor_input("x", {1, 1, 64});
    const Tensor position = state_input("position", {1, 1}, DType::i32, Init::constant(38));
    const Tensor length = state_input("length", {1}, DType::i32, Init::constant(39));
    std::vector<Tensor> seen;
    for (int i = 0; i < caches; ++i) {
      const std::string number = std::to_string(i);
      const Tensor cache = state_input("cache." + number, {1, cache_heads, cache_keys, 16});
      const Tensor values = split_heads(linear("kv" + number, x, cache_heads * 16, DType::f16), cache_heads);
      const Tensor next = cache_append(cache, values, position);
      update(cache, next);
      for (const Tensor& part : read(next)) seen.push_back(part);
      output("all." + number, sum(next * 1.0, {-1}));
    }
    const Tensor q = split_heads(linear("q", x, 64, DType::f16), 4);
    const AttentionOptions options{.causal = true, .lengths = minimum(length, 40), .positions = position};
    output("y", merge_heads(attention(q, seen.front(), seen.back(), options)));
    update(position, position + 1);
    update(length, length + 1);
  });
}

// As where keys and values are computed from one latent vector.
TEST(FoldingAttention, ReadsOneCacheAsKeysAndValues) {
  const Graph graph = cache_graph(1, 1, [](const Tensor& cache) { return std::vector{cache}; });
  expect_reference_with_subgroups(graph, inputs_of(graph), 3);
}

// Attention over a part of the cache would store the newest row only there.
TEST(FoldingAttention, AppendsToCachesOfWhichItReadsAPartComeFirst) {
  const Graph places = cache_graph(2, 2, [](const Tensor& cache) { return std::vector{slice(cache, 2, 0, 40)}; });
  const Graph heads = cache_graph(4, 1, [](const Tensor& cache) {
    return std::vector{slice(cache, 1, 0, 2), slice(cache, 1, 2, 4)};
  });
  for (const Graph* graph : {&places, &heads}) expect_reference_with_subgroups(*graph, inputs_of(*graph), 4);
}

// The step that appends a key computes the same bits as the steps that read it.
TEST(FoldingAttention, SeesTheNewestKeyAsLaterStepsDo) {
  const auto step = [](bool appends) {
    return trace([&] {
      const Tensor x = tensor_input("x", {1, 1, 64});
      const Tensor position = state_input("position", {1, 1}, DType::i32, Init::constant(0));
      const auto cached = [&](const std::string& name) {
        const Tensor cache = state_input("cache." + name, {1, 2, cache_keys, 16}, DType::f16);
        if (!appends) return cache;
        const Tensor heads = split_heads(linear(name, x, 32, DType::f32), 2);
        const Tensor next = cache_append(cache, cast(rope(heads, position), DType::f16), position);
        update(cache, next);
        return next;
      };
      const Tensor q = cast(split_heads(linear("q", x, 64, DType::f32), 4), DType::f16);
      const Tensor k = cached("k"), v = cached("v"), length = reshape(position + 1, {1});
      output("y", attention(q, k, v, {.causal = true, .lengths = length, .positions = position}));
    });
  };
  Target target = gpu_target(32);
  target.f16 = true;  // where drivers may take a conversion to f16 and back for nothing
  Session session(Device::webgpu({.target = target}));
  const Graph with = step(true);
  session.add_entry("appends", with);
  session.add_entry("reads", step(false));
  std::uint64_t seed = 1;
  for (const TensorInfo& tensor : with.tensors)
    if (tensor.storage == Storage::param)
      session.upload_param(tensor.name,
                           random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++).bytes());
  for (int i = 0; i < 4; ++i) {
    const TensorMap inputs = inputs_of(with);
    const HostTensor first = session.run("appends", inputs).get("y"), later = session.run("reads", inputs).get("y");
    for (std::int64_t k = 0; k < first.size(); ++k) ASSERT_EQ(first.number(k), later.number(k)) << k;
  }
}

// With several tokens, or more queries of a key head than a workgroup has, appends precede attention.
TEST(FoldingAttention, AppendsComeFirstWhereSeveralWorkgroupsReadAKey) {
  for (const Attending& form : {Attending{.head_norm = true, .time = 2}, Attending{.head_norm = true, .heads = 24}})
    EXPECT_GT(dispatches(attention_graph(form)), 6u);
}

}  // namespace
}  // namespace jerboa::test::fold_test
