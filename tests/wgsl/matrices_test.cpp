#include <array>
#include <gtest/gtest.h>
#include <random>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "verify/compare.h"
#include "wgsl/emulated_matrices.h"
#include "wgsl/half_products.h"
#include "wgsl/product/form.h"
#include "wgsl/shared_device.h"

// f16 products on subgroup matrices against the reference in f64, in all layouts and at sizes that do not fill tiles:
// emulated on any device, and native if the device supports them. Without an adapter the tests fail and say why.
namespace jerboa::test::matrices_test {
namespace {

// Few resident workgroups: large tiles. Many: small tiles, and long sums in chunks.
enum class Size { large_tiles, small_tiles };

Target target_of(SubgroupMatrices matrices, Size size) {
  Target target = Target::webgpu_default();
  target.f16 = true;
  target.f16_arithmetic = false;  // products not computed on matrices must be as exact
  // A software driver would take minutes to compile the largest tiles; the same code emits the ones below.
  const bool leaves_out_largest = matrices == SubgroupMatrices::emulated && size == Size::large_tiles;
  target.workgroup_bytes = leaves_out_largest ? 16384 : 32768;
  target.subgroup_size = 32;
  target.subgroup_matrices = matrices;
  target.resident_workgroups = size == Size::large_tiles ? 1 : 264;
  return target;
}

const Device& device(SubgroupMatrices matrices, Size size) {
  return shared_device(std::pair(matrices, size),
                       [](const auto& key) { return WebGpuOptions{.target = target_of(key.first, key.second)}; });
}

// Emulated, and native if the device supports it.
std::vector<SubgroupMatrices> forms() {
  std::vector<SubgroupMatrices> result{SubgroupMatrices::emulated};
  const Device& native = device(SubgroupMatrices::native, Size::small_tiles);
  if (webgpu_target(native.backend()).subgroup_matrices == SubgroupMatrices::native)
    result.push_back(SubgroupMatrices::native);
  return result;
}

std::string text_of(const Graph& graph, const Target& target) {
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  EXPECT_EQ(!program.gpu.subgroup_matrices.empty(), target.subgroup_matrices == SubgroupMatrices::native);
  return print_gpu(program);
}

void expect_reference_and_same_bits(const Sample& sample, Size size) {
  for (const SubgroupMatrices matrices : forms()) {
    SCOPED_TRACE(matrices == SubgroupMatrices::native ? "native" : "emulated");
    const TensorMap computed = outputs_on(device(matrices, size), sample);
    expect_reference(sample, computed, "on matrices", tolerance_of_halves);
    expect_same_bits(computed, outputs_on(device(matrices, size), sample), "a second time");
  }
}

struct Trial {
  std::string name;
  Size size;
  int products;  // on matrices, of the three: itself and the gradients
  Case one;
};

std::ostream& operator<<(std::ostream& stream, const Trial& trial) { return stream << trial.name; }

std::vector<Trial> trials() {
  const auto small = Size::small_tiles, large = Size::large_tiles;
  return {
      {"edges_of_large_tiles", large, 3, {{any({132, 100}), any({100, 136})}, MatmulAttrs{}}},
      {"large_tiles_transposed", large, 3, {{any({64, 144}), any({152, 64})}, MatmulAttrs{true, true}}},
      {"edges", small, 3, {{any({36, 60}), any({60, 68})}, MatmulAttrs{}}},
      {"whole_tiles", small, 3, {{any({32, 64}), any({64, 64})}, MatmulAttrs{false, true}}},
      {"transposed", small, 3, {{any({44, 36}), any({52, 44})}, MatmulAttrs{true, true}}},
      {"batch", small, 3, {{any({3, 40, 24}), any({3, 20, 24})}, MatmulAttrs{false, true}}},
      {"one_right_hand_side", small, 3, {{any({3, 24, 40}), any({40, 36})}, MatmulAttrs{}}},
      {"odd_columns", small, 3, {{any({37, 48}), any({45, 48})}, MatmulAttrs{false, true}}},
      {"odd", small, 3, {{any({33, 50}), any({50, 37})}, MatmulAttrs{}}},
      {"odd_transposed", small, 3, {{any({50, 33}), any({37, 50})}, MatmulAttrs{true, true}}},
      {"odd_batch", small, 3, {{any({2, 21, 15}), any({2, 19, 15})}, MatmulAttrs{false, true}}},
      {"in_chunks", small, 3, {{within(-1, 1, {12, 1028}), within(-1, 1, {1028, 20})}, MatmulAttrs{}}},
  };
}

class ProductsOnMatrices : public ::testing::TestWithParam<Trial> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ProductsOnMatrices, ::testing::ValuesIn(trials()),
                         [](const ::testing::TestParamInfo<Trial>& param) { return param.param.name; });

TEST_P(ProductsOnMatrices, EqualTheReferenceAndThemselves) {
  const Trial& trial = GetParam();
  const Sample sample = product_of_halves(trial.one);
  EXPECT_EQ(emulated_matrix_shaders(text_of(sample.graph, target_of(SubgroupMatrices::emulated, trial.size))),
            trial.products);
  expect_reference_and_same_bits(sample, trial.size);
}

Sample with_inputs(Graph graph, const SymbolValues& symbols = {}) {
  Sample sample;
  sample.graph = std::move(graph);
  std::mt19937 random(1);
  for (const TensorInfo& tensor : sample.graph.tensors) {
    if (tensor.storage != Storage::input) continue;
    Value value{tensor.type.dtype, evaluate(tensor.type.shape, symbols), {}};
    for (std::int64_t i = 0; i < element_count(value.shape); ++i)
      value.data.push_back(std::uniform_int_distribution(-64, 64)(random) / 64.0);
    sample.inputs.emplace(tensor.name, std::move(value));
  }
  return sample;
}

// Epilogues are computed where a product's results are stored: a bias, an activation, a residual, f16 and f32 results,
// and the mean of a row, four of which are not adjacent.
TEST(ProductsOnMatricesWithEpilogue, EqualTheReference) {
  const auto graph = [](std::int64_t rows, std::int64_t inner, std::int64_t columns) {
    return trace([&] {
      const Tensor x = tensor_input("x", {rows, inner}, DType::f16),
                   w = tensor_input("w", {columns, inner}, DType::f16);
      const Tensor bias = tensor_input("bias", {columns}, DType::f16), residual = tensor_input("r", {rows, columns});
      const Tensor scale = tensor_input("scale", {rows, 1});
      const Tensor hidden = cast(gelu(matmul(x, w, {.transpose_b = true}) + bias), DType::f32);
      const Tensor y = hidden * scale + residual;
      output("y", y);
      output("halves", cast(y, DType::f16));
    });
  };
  // Whole fours, odd columns, and chunks, whose sums another shader finishes.
  for (const std::array<std::int64_t, 3>& sizes :
       {std::array<std::int64_t, 3>{70, 40, 72}, {20, 40, 37}, {24, 1024, 40}}) {
    SCOPED_TRACE(sizes[2]);
    const Sample sample = with_inputs(graph(sizes[0], sizes[1], sizes[2]));
    EXPECT_EQ(count_of(text_of(sample.graph, target_of(SubgroupMatrices::emulated, Size::small_tiles)),
                       " matmul_matrices of "),
              1);
    for (const SubgroupMatrices matrices : forms())
      expect_reference(sample, outputs_on(device(matrices, Size::small_tiles), sample), "with an epilogue",
                       Tolerance{4e-3, 4e-3, 1e-3});
  }
}

// Operands that become f16 only when they are read, and whose prologue maps zero to something else.
TEST(ProductsOnMatricesWithPrologue, EqualTheReference) {
  for (const std::int64_t inner : {44, 45}) {
    const Sample sample = with_inputs(trace([&] {
      const Tensor x = tensor_input("x", {40, inner}), w = tensor_input("w", {36, inner}, DType::f16);
      output("y", cast(matmul(cast(x, DType::f16), relu(w) + 1, {.transpose_b = true}), DType::f32));
    }));
    EXPECT_EQ(count_of(text_of(sample.graph, target_of(SubgroupMatrices::emulated, Size::small_tiles)),
                       " matmul_matrices of "),
              1);
    for (const SubgroupMatrices matrices : forms())
      expect_reference(sample, outputs_on(device(matrices, Size::small_tiles), sample), "with a prologue",
                       Tolerance{1e-3, 1e-3, 1e-3});
  }
}

Graph product(std::int64_t rows, std::int64_t inner, std::int64_t columns, MatmulAttrs attrs = {},
              DType dtype = DType::f16) {
  return trace([&] {
    const Tensor a = tensor_input("a", attrs.transpose_a ? Shape{inner, rows} : Shape{rows, inner}, dtype);
    const Tensor b = tensor_input("b", attrs.transpose_b ? Shape{columns, inner} : Shape{inner, columns}, dtype);
    output("y", matmul(a, b, {.transpose_a = attrs.transpose_a, .transpose_b = attrs.transpose_b}));
  });
}

// The program of a graph that is one product, in a form that is not chosen for it.
Program program_as(const Graph& graph, const Target& target, const wgsl::MatmulForm& form) {
  Program program = lower(graph, target);
  const Dispatch::Part& part = program.cpu.dispatches.at(0).parts.at(0);
  std::vector<wgsl::ShaderMemory> memories;
  for (const int number : part.buffers) {
    const Buffer& buffer = program.buffers.at(static_cast<std::size_t>(number));
    memories.push_back({buffer.dtype, buffer.bytes, buffer.name});
  }
  wgsl::KernelWriter writer(program.cpu.kernels.at(static_cast<std::size_t>(part.kernel)), target, memories);
  wgsl::write_matmul_as(writer, form);
  program.gpu.emitted = true;
  for (const auto& written : writer.steps()) {
    GpuStep step;
    step.shader = static_cast<int>(program.gpu.shaders.size());
    step.workgroups = written.workgroups;
    for (const auto& binding : written.shader.bindings)
      step.bindings.push_back({part.buffers.at(static_cast<std::size_t>(binding.memory)), binding.offset, binding.bytes,
                               binding.written, binding.read_write});
    program.gpu.shaders.push_back(written.shader.source);
    program.gpu.steps.push_back(std::move(step));
  }
  verify(program, target);
  return program;
}

// Only the largest tiles fetch ahead.
TEST(ProductsOnMatricesFetchedAhead, EqualTheReference) {
  wgsl::MatmulForm form{wgsl::MatmulForm::Kind::matrices, 32, 64, 32, 16, 32, 8};
  form.ahead = 1;
  const Device& this_device = device(SubgroupMatrices::emulated, Size::small_tiles);
  for (const auto& [attrs, less] : {std::pair(MatmulAttrs{}, 0), {MatmulAttrs{true, true}, 0}, {MatmulAttrs{}, 1}}) {
    const Sample sample = with_inputs(product(36 - less, 100 - less, 68 - less, attrs));
    const Program program = program_as(sample.graph, webgpu_target(this_device.backend()), form);
    EXPECT_NE(print_gpu(program).find("step += 1.0"), std::string::npos);
    std::map<std::string, HostTensor> inputs;
    for (const auto& [name, value] : sample.inputs) inputs.emplace(name, to_host(value));
    const auto executable = this_device.backend().load(program, [](const std::string&) { return nullptr; });
    expect_reference(sample, {{"y", executable->run({inputs, {}, {}})->read("y")}}, "fetched ahead",
                     tolerance_of_halves);
  }
}

TEST(FormOfProducts, IsChosenBySizesAndTarget) {
  Target target = target_of(SubgroupMatrices::native, Size::small_tiles);
  const std::string large = text_of(product(4096, 4096, 4096), target);
  for (const char* part :
       {"enable chromium_experimental_subgroup_matrix;", "var<storage, read_write> buffer_0: array<vec2u>",
        "subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&tile_a",
        "step 0: matmul_matrices of 1024 w"})
    EXPECT_NE(large.find(part), std::string::npos) << part;
  EXPECT_EQ(large.find("min(a_at"), std::string::npos) << "nothing is past the end here";
  // 108 tiles, twice.
  const std::string split = text_of(product(768, 8192, 2304, {true, false}), target);
  EXPECT_NE(split.find("step 0: matmul_matrices of 216 w"), std::string::npos);
  EXPECT_NE(split.find("matmul_parts"), std::string::npos);
  EXPECT_NE(text_of(product(4096, 4096, 4096, {false, true}), target).find("col_major>(&tile_b"), std::string::npos);
  target.subgroup_matrices = SubgroupMatrices::none;
  EXPECT_EQ(text_of(product(4096, 4096, 4096), target).find("subgroup"), std::string::npos);
}

// GPT-2's vocabulary: the logits, and the gradients through them.
TEST(FormOfProducts, IsOnMatricesForOddSizes) {
  Target target = target_of(SubgroupMatrices::native, Size::small_tiles);
  target.max_binding_bytes = target.max_buffer_bytes = (std::int64_t{2} << 30) - 256;
  for (const Graph& graph : {product(8192, 768, 50257, {false, true}), product(8192, 50257, 768),
                             product(50257, 8192, 768, {true, false})}) {
    const std::string text = text_of(graph, target);
    EXPECT_NE(text.find("step 0: matmul_matrices of "), std::string::npos);
    EXPECT_NE(text.find("buffer_1: array<vec2u>"), std::string::npos) << "weights and activations are read in fours";
  }
}

TEST(FormOfProducts, FitsTheWorkgroupMemory) {
  Target target = target_of(SubgroupMatrices::emulated, Size::large_tiles);
  target.workgroup_bytes = 16384;
  EXPECT_NE(text_of(product(4096, 4096, 4096), target).find("step 0: matmul_matrices of 4096 w"), std::string::npos);
  target.workgroup_bytes = 8192;
  EXPECT_EQ(text_of(product(4096, 4096, 4096), target).find("matmul_matrices"), std::string::npos);
}

TEST(ProgramOnMatrices, IsRefusedWhereTheyAreMissing) {
  const Target target = target_of(SubgroupMatrices::native, Size::small_tiles);
  Program program = lower(product(64, 64, 64), target);
  emit_wgsl(program, target);
  const Device device = Device::webgpu({.use_subgroup_matrices = false});
  EXPECT_THROW(device.backend().load(program, [](const std::string&) { return nullptr; }), UsageError);
}

// A tensor that is multiplied by itself is bound once for reading.
TEST(FormOfProducts, BindsWhatOverlapsForReading) {
  const Target target = target_of(SubgroupMatrices::native, Size::small_tiles);
  Program program = lower(trace([] {
                            const Tensor a = tensor_input("a", {4096, 4096}, DType::f16);
                            output("y", matmul(a, a, {.transpose_b = true}));
                          }),
                          target);
  emit_wgsl(program, target);
  verify(program, target);
}

// Products of f32 in large, double-buffered tiles, at sizes that fill none of them.
TEST(ProductsInTwoBuffers, EqualTheReferenceAndThemselves) {
  WebGpuOptions options;
  options.target = Target::webgpu_default();
  options.target->resident_workgroups = 2;  // so few that small products are large
  options.sentinel = 7e8F;
  const Device device = Device::webgpu(options);
  const std::vector<std::pair<Case, std::string>> cases{
      {{{any({252, 70}), any({70, 255})}, MatmulAttrs{}}, "array<vec4f, 512>"},
      {{{any({189, 132}), any({180, 189})}, MatmulAttrs{true, true}}, "array<vec4f, 256>"}};
  for (const std::pair<Case, std::string>& own_case : cases) {
    const Case& one = own_case.first;
    Sample sample;
    sample.graph = trace([&] { output("out", build(Op::matmul, one, sample.inputs).outputs[0]); });
    const std::string text = text_of(sample.graph, *options.target);
    EXPECT_NE(text.find("tile_a: " + own_case.second), std::string::npos) << text;
    const TensorMap computed = outputs_on(device, sample);
    expect_reference(sample, computed, "in two buffers", Tolerance{1e-4, 1e-4, 2e-6});
    expect_same_bits(computed, outputs_on(device, sample), "a second time");
  }
}

// The epilogue's operands are loaded for each result before the first is stored, even past the last row and column, and
// where the result replaces an operand.
TEST(ProductsInTilesWithEpilogue, EqualTheReference) {
  WebGpuOptions options;
  options.target = Target::webgpu_default();
  options.sentinel = 7e8F;
  const Device this_device = Device::webgpu(options);
  const Sample sample = with_inputs(trace([] {
    const Tensor x = tensor_input("x", {70, 36}), w = tensor_input("w", {76, 36});
    const Tensor bias = tensor_input("bias", {76}), residual = tensor_input("r", {70, 76});
    const Tensor gate = tanh(residual);  // which is in memory, and not needed afterwards
    const Tensor y = gelu(matmul(x, w, {.transpose_b = true}) + bias, GeluForm::tanh);
    output("y", y * gate + residual);
    output("z", y);
  }));
  EXPECT_NE(text_of(sample.graph, *options.target)
                .find("_early_0 = early_0(batch, min(row_0, 70u - 1u), "
                      "min(column_0, 76u - 4u));"),
            std::string::npos);
  expect_reference(sample, outputs_on(this_device, sample), "with an epilogue", Tolerance{1e-4, 1e-4, 2e-6});
}

// Products of f32 whose inner elements teams of threads share, which add up their results at the end.
TEST(ProductsInTeams, EqualTheReferenceAndThemselves) {
  WebGpuOptions options;
  options.target = Target::webgpu_default();
  options.sentinel = 7e8F;
  const Device this_device = Device::webgpu(options);
  wgsl::MatmulForm small{wgsl::MatmulForm::Kind::tiles, 32, 32, 32, 4, 4};
  small.teams = 4;
  wgsl::MatmulForm large{wgsl::MatmulForm::Kind::tiles, 32, 64, 16, 8, 8, 0};
  large.teams = 2;
  large.two_buffers = true;
  for (const auto& [form, attrs] : {std::pair(small, MatmulAttrs{}), {large, MatmulAttrs{true, true}}}) {
    const Sample sample = with_inputs(product(36, 100, 68, attrs, DType::f32));
    const Program program = program_as(sample.graph, webgpu_target(this_device.backend()), form);
    std::map<std::string, HostTensor> inputs;
    for (const auto& [name, value] : sample.inputs) inputs.emplace(name, to_host(value));
    const auto executable = this_device.backend().load(program, [](const std::string&) { return nullptr; });
    const TensorMap computed{{"y", executable->run({inputs, {}, {}})->read("y")}};
    expect_reference(sample, computed, "in teams", Tolerance{1e-4, 1e-4, 2e-6});
    expect_same_bits(computed, {{"y", executable->run({inputs, {}, {}})->read("y")}}, "a second time");
  }
}

}  // namespace
}  // namespace jerboa::test::matrices_test
