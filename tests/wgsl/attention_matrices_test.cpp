#include <gtest/gtest.h>
#include <random>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/ir/packed_cache.h>
#include <jerboa/lower/lower.h>
#include <jerboa/transform/grad.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "verify/compare.h"
#include "wgsl/emulated_matrices.h"
#include "wgsl/shared_device.h"

// f16 attention and its gradient on subgroup matrices against the reference in f64, at sizes around the edges of tiles:
// native if the device supports them, otherwise emulated. Without an adapter the tests fail and say why.
namespace jerboa::test::attention_matrices_test {
namespace {

// With little workgroup memory, forms are small, and drivers on the CPU compile them in seconds; the same code writes
// those for GPUs.
enum class Size { small, full };

Target target_of(SubgroupMatrices matrices, Size size) {
  Target target = Target::webgpu_default();
  target.f16 = true;
  target.workgroup_bytes = size == Size::small ? 16384 : 49152;
  target.subgroup_size = 32;
  target.subgroup_matrices = matrices;
  return target;
}

const Device& device(SubgroupMatrices matrices, Size size) {
  return shared_device(std::pair(matrices, size),
                       [](const auto& key) { return WebGpuOptions{.target = target_of(key.first, key.second)}; });
}

struct Form {
  SubgroupMatrices matrices;
  Size size;
};

// Native if the device supports it, otherwise emulated.
std::vector<Form> forms(Size emulated) {
  const Device& native = device(SubgroupMatrices::native, Size::full);
  if (webgpu_target(native.backend()).subgroup_matrices == SubgroupMatrices::native)
    return {{SubgroupMatrices::native, Size::small}, {SubgroupMatrices::native, Size::full}};
  return {{SubgroupMatrices::emulated, emulated}};
}

struct Problem {
  std::string name;
  std::int64_t heads, key_heads;
  Dim time, keys;
  std::int64_t size;
  AttentionOptions options = {};
  bool interleaved = false;  // q, k and v side by side in one tensor, as one projection leaves them
  double magnitude = 1;
  std::int64_t batch = 1;
  Size emulated = Size::small;
  bool gradients = true;
  bool only_native = false;  // emulated, it would take a driver on the CPU minutes to compile
};

std::ostream& operator<<(std::ostream& stream, const Problem& problem) { return stream << problem.name; }

// The output of attention, and the gradients of its operands.
Graph graph_of(const Problem& p, DType dtype = DType::f16) {
  return trace([&] {
    std::vector<Tensor> inputs, operands;
    if (p.interleaved) {
      inputs = {tensor_input("qkv", {p.batch, p.time, (p.heads + 2 * p.key_heads) * p.size}, dtype)};
      const std::int64_t queries = p.heads * p.size, keys = p.key_heads * p.size;
      operands = {split_heads(slice(inputs[0], -1, 0, queries), static_cast<int>(p.heads)),
                  split_heads(slice(inputs[0], -1, queries, queries + keys), static_cast<int>(p.key_heads)),
                  split_heads(slice(inputs[0], -1, queries + keys, queries + 2 * keys), static_cast<int>(p.key_heads))};
    } else {
      inputs = {tensor_input("q", {p.batch, p.heads, p.time, p.size}, dtype),
                tensor_input("k", {p.batch, p.key_heads, p.keys, p.size}, dtype),
                tensor_input("v", {p.batch, p.key_heads, p.keys, p.size}, dtype)};
      operands = inputs;
    }
    const Tensor out = attention(operands[0], operands[1], operands[2], p.options);
    output("out", out);
    if (!p.gradients) return;
    const Tensor cotangent = tensor_input("cotangent", {p.batch, p.heads, p.time, p.size}, dtype);
    const auto gradients = vector_jacobian({out}, {cotangent}, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) output(inputs[i].name() + "_gradient", gradients[i]);
  });
}

Sample sample_of(const Problem& p) {
  Sample sample;
  sample.graph = graph_of(p);
  for (const Node& node : std::vector<Node>(sample.graph.nodes))
    if (node.op == Op::attention)
      trace_into(sample.graph, [&] { output("lse", Tensor(sample.graph.identity(), node.outputs[1])); });
  std::mt19937 random(1);
  for (const TensorInfo& tensor : sample.graph.tensors) {
    if (tensor.storage != Storage::input) continue;
    Value value{tensor.type.dtype, evaluate(tensor.type.shape, symbol_values), {}};
    const double magnitude = tensor.name == "cotangent" ? 1 : p.magnitude;
    for (std::int64_t i = 0; i < element_count(value.shape); ++i)
      value.data.push_back(std::uniform_int_distribution(-64, 64)(random) / 64.0 * magnitude);
    sample.inputs.emplace(tensor.name, std::move(value));
  }
  return sample;
}

std::string text_of(const Graph& graph, const Target& target) {
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  verify(program, target);
  return print_gpu(program);
}

std::vector<Problem> problems() {
  const AttentionOptions causal{.causal = true};
  return {
      {"edges_of_tiles", 2, 1, 33, 33, 16, {}, false, 1, 2},
      {"any_time", 2, 1, T, T, 16, causal},
      {"one_matrix", 2, 2, 16, 16, 16, causal, false, 1, 1, Size::full, true, true},
      {"fewer_keys", 1, 1, 70, 20, 16, {}, false, 1, 1, Size::full, true, true},
      {"middle_heads", 4, 2, 100, 100, 64, causal, true, 1, 2, Size::full, true, true},
      {"large_heads", 2, 1, 100, 100, 128, causal, false, 1, 1, Size::full, true, true},
      {"odd_heads", 1, 1, 40, 40, 48, causal, false, 1, 1, Size::full, true, true},
      {"odd_large_heads", 1, 1, 70, 70, 112, causal, false, 1, 1, Size::full, true, true},
  };
}

// Each takes a software driver minutes to compile.
std::vector<Problem> slow_problems() {
  const AttentionOptions causal{.causal = true};
  return {
      {"interleaved", 4, 2, 100, 100, 16, causal, true, 1, 2},
      {"middle_heads_forward", 2, 1, 33, 33, 64, causal, true, 1, 1, Size::small, false},
      {"full_forms", 2, 1, 140, 150, 16, causal, false, 1, 1, Size::full},
      {"whole_tiles", 2, 2, 128, 128, 16, causal},
      // Scores of some 30 either way: later ones exceed those of the first tile by more than f16 can hold.
      {"large_scores", 2, 1, 100, 100, 16, {.causal = true, .scale = 1}, false, 3},
      {"large_heads_forward", 2, 1, 33, 33, 128, causal, false, 1, 1, Size::small, false},
  };
}

std::string name_of(const ::testing::TestParamInfo<Problem>& param) { return param.param.name; }

class AttentionOnMatrices : public ::testing::TestWithParam<Problem> {};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOnMatrices, ::testing::ValuesIn(problems()), name_of);
INSTANTIATE_TEST_SUITE_P(OtherForms, AttentionOnMatrices, ::testing::ValuesIn(slow_problems()), name_of);

TEST_P(AttentionOnMatrices, EqualsTheReferenceAndItself) {
  const Sample sample = sample_of(GetParam());
  const std::string text = text_of(sample.graph, target_of(SubgroupMatrices::emulated, GetParam().emulated));
  // The output, and in the gradient dq, and dk with dv.
  EXPECT_EQ(emulated_matrix_shaders(text), GetParam().gradients ? 3 : 1);
  const std::vector<Form> all_forms = forms(GetParam().emulated);
  if (GetParam().only_native && all_forms[0].matrices == SubgroupMatrices::emulated)
    GTEST_SKIP() << "needs a device with subgroup matrices";
  for (const Form& form : all_forms) {
    SCOPED_TRACE(form.matrices == SubgroupMatrices::native ? "native" : "emulated");
    const Device& own = device(form.matrices, form.size);
    const TensorMap computed = outputs_on(own, sample);
    // The output and, between the products, weights and their gradients are rounded to f16; the error of gradients
    // grows with values and keys.
    const double magnitude = GetParam().magnitude;
    expect_reference(sample, computed, "on matrices", Tolerance{4e-3, 4e-3 * magnitude * magnitude, 2e-3});
    expect_same_bits(computed, outputs_on(own, sample), "a second time");
  }
}

// Queries at given positions over caches that are longer than their content: queries at negative positions, and
// sequences without keys, see nothing. Values past a sequence's length are large, and must not count.
struct CacheProblem {
  std::string name;
  std::int64_t size;
  std::vector<int> lengths, starts;  // by sequence: of what its cache holds, and of its first query
  int padding = 0;                   // queries before the first, at negative positions
  std::int64_t block = 0;            // of a paged cache
  bool causal = true;
  bool packed = false;  // an 8-bit cache
  int window = 0;
};

std::ostream& operator<<(std::ostream& stream, const CacheProblem& problem) { return stream << problem.name; }

constexpr std::int64_t cache_keys = 96, cache_queries = 40;

Sample sample_of(const CacheProblem& p) {
  const auto batch = static_cast<std::int64_t>(p.lengths.size());
  const std::int64_t width = p.packed ? packed_words(p.size) : p.size;
  const DType dtype = p.packed ? packed_cache : DType::f16;
  const Shape cache =
      p.block > 0 ? Shape{batch * cache_keys / p.block, 1, p.block, width} : Shape{batch, 1, cache_keys, width};
  Sample sample;
  sample.graph = trace([&] {
    const Tensor q = tensor_input("q", {batch, 2, cache_queries, p.size}, DType::f16);
    const Tensor k = tensor_input("k", cache, dtype), v = tensor_input("v", cache, dtype);
    const Tensor lengths = tensor_input("lengths", {batch}, DType::i32);
    const Tensor positions = tensor_input("positions", {batch, cache_queries}, DType::i32);
    const Tensor table = p.block > 0 ? tensor_input("table", {batch, cache_keys / p.block}, DType::i32) : Tensor();
    output("out",
           attention(
               q, k, v,
               {.causal = p.causal, .window = p.window, .lengths = lengths, .positions = positions, .table = table}));
  });
  std::mt19937 random(1);
  for (const TensorInfo& tensor : sample.graph.tensors) {
    if (tensor.storage != Storage::input) continue;
    Value value{tensor.type.dtype, evaluate(tensor.type.shape, {}), {}};
    for (std::int64_t i = 0; i < element_count(value.shape); ++i)
      value.data.push_back(std::uniform_int_distribution(-64, 64)(random) / 64.0);
    if (tensor.type.dtype == packed_cache)
      for (std::int64_t i = 0; i < element_count(value.shape); ++i)
        value.data[static_cast<std::size_t>(i)] =
            i % width < p.size / features_per_word ? static_cast<double>(random()) : 0x3c803c80;  // 1 / 64
    sample.inputs.emplace(tensor.name, std::move(value));
  }
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::int64_t pages = p.block > 0 ? cache_keys / p.block : 1, page = cache_keys / pages;
  for (std::int64_t b = 0; b < batch; ++b) {
    sample.inputs.at("lengths").data[at(b)] = p.lengths[at(b)];
    for (std::int64_t t = 0; t < cache_queries; ++t)
      sample.inputs.at("positions").data[at(b * cache_queries + t)] =
          t < p.padding ? -1 : p.starts[at(b)] + static_cast<int>(t) - p.padding;
    // Pages of all sequences in turn, the last first.
    for (std::int64_t i = 0; p.block > 0 && i < pages; ++i)
      sample.inputs.at("table").data[at(b * pages + i)] = static_cast<double>((pages - 1 - i) * batch + b);
    for (std::int64_t key = p.lengths[at(b)]; key < cache_keys; ++key) {
      const std::int64_t row =
          p.block > 0 ? ((pages - 1 - key / page) * batch + b) * page + key % page : b * cache_keys + key;
      for (std::int64_t i = 0; i < width; ++i)
        sample.inputs.at("v").data[at(row * width + i)] = p.packed ? 0x43004300 : 60000;  // 128 times 67
    }
  }
  return sample;
}

class CachesOnMatrices : public ::testing::TestWithParam<CacheProblem> {};
INSTANTIATE_TEST_SUITE_P(Shapes, CachesOnMatrices,
                         ::testing::Values(CacheProblem{"straight", 16, {75, 50}, {35, 10}},
                                           CacheProblem{"long_window", 16, {75, 50}, {35, 10}, 0, 0, true, false, 96},
                                           CacheProblem{"padded", 16, {33, 0}, {0, -64}, 7},
                                           CacheProblem{"paged", 16, {75, 50}, {35, 10}, 3, 32},
                                           CacheProblem{"packed", 64, {75, 50}, {35, 10}, 3, 32, true, true},
                                           CacheProblem{"packed_straight", 16, {75, 50}, {35, 10}, 0, 0, true, true},
                                           CacheProblem{"not_causal", 16, {75, 20}, {35, 0}, 0, 0, false}),
                         [](const ::testing::TestParamInfo<CacheProblem>& param) { return param.param.name; });

TEST_P(CachesOnMatrices, EqualTheReferenceAndThemselves) {
  const Sample sample = sample_of(GetParam());
  const std::string text = text_of(sample.graph, target_of(SubgroupMatrices::emulated, Size::small));
  EXPECT_NE(text.find(" attention_matrices of "), std::string::npos);
  for (const Form& form : forms(Size::small)) {
    SCOPED_TRACE(form.matrices == SubgroupMatrices::native ? "native" : "emulated");
    const Device& own = device(form.matrices, form.size);
    const TensorMap computed = outputs_on(own, sample);
    expect_reference(sample, computed, "on matrices", Tolerance{4e-3, 4e-3, 2e-3});
    expect_same_bits(computed, outputs_on(own, sample), "a second time");
  }
}

// Everything else keeps the forms that it had.
TEST(FormOfAttention, IsChosenBySizesAndTarget) {
  const Target native = target_of(SubgroupMatrices::native, Size::full);
  const Problem causal{"", 2, 2, 256, 256, 64, {.causal = true}};
  const std::string text = text_of(graph_of(causal), native);
  for (const char* part :
       {"enable chromium_experimental_subgroup_matrix;", "step 0: attention_matrices of 4 workgroups",
        "var<storage, read_write> buffer_0: array<vec2u>", "attention_dkv_matrices of 4 workgroups"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  const auto uses_matrices = [&](const Problem& problem, const Target& target, DType dtype = DType::f16) {
    return text_of(graph_of(problem, dtype), target).find("_matrices of ") != std::string::npos;
  };
  EXPECT_FALSE(uses_matrices(causal, target_of(SubgroupMatrices::none, Size::full)));
  EXPECT_FALSE(uses_matrices(causal, native, DType::f32));
  Problem other = causal;
  other.options.window = 255;
  EXPECT_FALSE(uses_matrices(other, native));
  other.options.window = 256;
  EXPECT_TRUE(uses_matrices(other, native)) << "as long as all keys";
  other = causal;
  other.options.soft_cap = 20;
  EXPECT_FALSE(uses_matrices(other, native));
  other = causal;
  other.keys = 100;
  EXPECT_FALSE(uses_matrices(other, native)) << "some queries see nothing";
  other = causal;
  other.size = 40;
  EXPECT_FALSE(uses_matrices(other, native));
  other = causal;
  other.time = 4;
  EXPECT_FALSE(uses_matrices(other, native)) << "few queries";
}

}  // namespace
}  // namespace jerboa::test::attention_matrices_test
