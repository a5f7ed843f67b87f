#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/runtime/tune.h>
#include <jerboa/transform/grad.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "runtime/form_contest.h"
#include "support/temp_folder.h"
#include "verify/compare.h"
#include "wgsl/half_products.h"
#include "wgsl/shared_device.h"
#include "wgsl/tuning/tuned_file.h"

// Tuned forms of kernels: their file, how they are chosen, and that each equals the reference. Without an adapter the
// tests fail and say why.
namespace jerboa::test::tuned_test {
namespace {

using wgsl::AttentionForm;
using wgsl::AttentionPart;
using wgsl::AttentionShape;
using wgsl::ColumnForm;
using wgsl::ColumnShape;
using wgsl::FormTable;
using wgsl::KernelForm;
using wgsl::KernelShape;
using wgsl::MatmulForm;
using wgsl::ProductShape;
using wgsl::QuantisedForm;
using wgsl::RowForm;
using wgsl::RowShape;
using wgsl::TunedFile;

// The kernels for GPUs, whatever the driver.
Target gpu_target() {
  Target target = Target::webgpu_default();
  target.f16 = true;
  target.subgroup_matrices = SubgroupMatrices::emulated;
  target.resident_workgroups = 264;
  target.workgroup_bytes = 32768;
  return target;
}

const Device& device() {
  return shared_device(0, [](int) { return WebGpuOptions{.target = gpu_target()}; });
}

Target tuned_for(const KernelShape& shape, const KernelForm& form, Target target = gpu_target()) {
  target.tuned = std::make_shared<FormTable>(FormTable::Forms{{shape, form}});
  return target;
}

ProductShape f32_shape(std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  return {.transpose_b = true, .rows = rows, .inner = inner, .columns = columns};
}

void trace_sample(const ProductShape& shape) {
  const Tensor a =
      tensor_input("a", shape.transpose_a ? Shape{shape.inner, shape.rows} : Shape{shape.rows, shape.inner}, shape.a);
  if (shape.b == DType::i4 || shape.b == DType::i8) {
    const Shape groups{shape.columns, shape.inner / quantised_group};
    const Tensor weight = tensor_input("b", {shape.columns, shape.inner}, shape.b);
    const Tensor scales = tensor_input("scales", groups, DType::f16), mins = tensor_input("mins", groups, DType::f16);
    output("y", matmul_quantised(a, weight, scales, mins));
    return;
  }
  const Tensor b = tensor_input(
      "b", shape.transpose_b ? Shape{shape.columns, shape.inner} : Shape{shape.inner, shape.columns}, shape.b);
  output("y", matmul(a, b, {.transpose_a = shape.transpose_a, .transpose_b = shape.transpose_b}));
}

// The sequences of a batch see fewer and fewer keys of a cache, whose pages are in reverse order.
void trace_sample(const AttentionShape& shape) {
  const Dim batch(shape.batch), time(shape.time);
  AttentionOptions options{.causal = shape.causal};
  Shape keys{shape.batch, shape.key_heads, shape.keys, shape.size};
  if (shape.cached) {
    const Tensor lengths = arange(batch) * -3 + static_cast<double>(shape.keys - 2);
    options.lengths = lengths;
    options.positions = arange(time) + unsqueeze(lengths, {-1}) - static_cast<double>(shape.time);
  }
  if (shape.page_size > 0) {
    const std::int64_t pages = shape.keys / shape.page_size, blocks = shape.batch * pages;
    options.table = reshape(static_cast<double>(blocks - 1) - arange(Dim(blocks)), {batch, Dim(pages)});
    keys = {blocks, shape.key_heads, shape.page_size, shape.size};
  }
  const Shape queries{shape.batch, shape.heads, shape.time, shape.size};
  const Tensor q = tensor_input("q", queries, shape.dtype), k = tensor_input("k", keys, shape.key_dtype);
  keys.back() = shape.value_size;
  const Tensor v = tensor_input("v", keys, shape.key_dtype);
  const Tensor out = attention(q, k, v, options);
  if (shape.part == AttentionPart::forward) return output("y", out);
  const Tensor dout = tensor_input("dout", out.shape(), shape.dtype);
  const auto gradients = vector_jacobian({out}, {dout}, {q, k, v});
  if (shape.part == AttentionPart::dq) return output("y", gradients[0]);
  output("y", gradients[1]);
  output("dv", gradients[2]);
}

void trace_sample(const RowShape& shape) {
  const Tensor x = tensor_input("x", {shape.rows, shape.columns}, DType::f32);
  output("y", softmax(x, -1));
}

void trace_sample(const ColumnShape& shape) {
  const Tensor x = tensor_input("x", {shape.rows, shape.columns}, DType::f32);
  output("y", sum(x, {0}));
}

Sample sample_of(const KernelShape& shape) {
  Sample sample;
  sample.graph = trace([&] { std::visit([](const auto& one) { trace_sample(one); }, shape); });
  std::mt19937 random(1);
  for (const TensorInfo& tensor : sample.graph.tensors) {
    if (tensor.storage != Storage::input) continue;
    const bool whole = bits(tensor.type.dtype) <= 8;
    Value value{tensor.type.dtype, evaluate(tensor.type.shape, {}), {}};
    for (std::int64_t i = 0; i < element_count(value.shape); ++i)
      value.data.push_back(whole ? std::uniform_int_distribution(-7, 7)(random)
                                 : std::uniform_int_distribution(-64, 64)(random) / 64.0);
    sample.inputs.emplace(tensor.name, std::move(value));
  }
  return sample;
}

std::string text_of(const KernelShape& shape, const Target& target) {
  Program program = lower(sample_of(shape).graph, target);
  emit_wgsl(program, target);
  return print_gpu(program);
}

TensorMap computed(const Sample& sample, const Target& target) {
  Program program = lower(sample.graph, target);
  emit_wgsl(program, target);
  std::map<std::string, HostTensor> inputs;
  for (const auto& [name, value] : sample.inputs) inputs.emplace(name, to_host(value));
  const auto executable = device().backend().load(program, [](const std::string&) { return nullptr; });
  const auto results = executable->run({inputs, {}, {}});
  TensorMap computed;
  for (const NamedTensor& output : sample.graph.outputs) computed.emplace(output.name, results->read(output.name));
  return computed;
}

void expect_reference_in_forms(const KernelShape& shape, const Tolerance& tolerance,
                               const std::vector<KernelForm>& forms) {
  const Sample sample = sample_of(shape);
  const Target target = webgpu_target(device().backend());
  ASSERT_FALSE(forms.empty()) << str(shape);
  std::set<std::string> texts;
  for (const KernelForm& form : forms) {
    SCOPED_TRACE(str(shape) + ": " + describe(form));
    const Target tuned = tuned_for(shape, form, target);
    const std::vector<KernelShape> shapes = wgsl::kernel_shapes(lower(sample.graph, tuned), tuned);
    EXPECT_NE(std::find(shapes.begin(), shapes.end(), shape), shapes.end());
    texts.insert(text_of(shape, tuned));
    expect_reference(sample, computed(sample, tuned), "in a tuned form", tolerance);
  }
  EXPECT_EQ(texts.size(), forms.size()) << "forms that make no difference";
}

// Every `every`-th form; software drivers compile slowly. Sizes fill no tile.
void expect_reference_in_all_forms(const KernelShape& shape, const Tolerance& tolerance, std::size_t every = 1) {
  const std::vector<KernelForm> all = wgsl::candidates(webgpu_target(device().backend()), shape);
  std::vector<KernelForm> forms;
  for (std::size_t i = 0; i < all.size(); i += every) forms.push_back(all[i]);
  expect_reference_in_forms(shape, tolerance, forms);
}

constexpr Tolerance f32_tolerance{1e-4, 1e-4, 2e-6};

TEST(TunedForms, OfF32EqualTheReference) { expect_reference_in_all_forms(f32_shape(68, 100, 68), f32_tolerance, 6); }

// All forms, which only ./dev test --full tests.
class AllTunedForms : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OtherForms, AllTunedForms, ::testing::Bool());

TEST_P(AllTunedForms, EqualTheReference) {
  ProductShape shape = f32_shape(68, 100, 68);
  shape.transpose_a = GetParam();
  shape.transpose_b = !GetParam();
  expect_reference_in_all_forms(shape, f32_tolerance);
}

TEST(TunedForms, OfHalvesEqualTheReference) {
  ProductShape shape = f32_shape(36, 100, 68);
  shape.a = shape.b = DType::f16;
  // The last forms are tiles, which multiply in f16 and are tested elsewhere.
  const auto is_on_matrices = [](const KernelForm& form) {
    return std::get<MatmulForm>(form).kind == MatmulForm::Kind::matrices;
  };
  const std::vector<KernelForm> forms = wgsl::candidates(webgpu_target(device().backend()), shape);
  const Sample sample = sample_of(shape);
  const auto smallest = std::find_if(forms.rbegin(), forms.rend(), is_on_matrices);
  if (!webgpu_target(device().backend()).f16) GTEST_SKIP() << "the device has no f16";
  ASSERT_NE(smallest, forms.rend());
  expect_reference(sample, computed(sample, tuned_for(shape, *smallest)), describe(*smallest), tolerance_of_halves);
}

TEST(TunedForms, OfVectorsEqualTheReference) { expect_reference_in_all_forms(f32_shape(2, 264, 24), f32_tolerance, 3); }

TEST(TunedForms, OfQuantisedWeightsEqualTheReference) {
  for (const DType weights : {DType::i8, DType::i4}) {
    ProductShape shape = f32_shape(1, 416, 90);
    shape.b = weights;
    shape.mins = true;
    expect_reference_in_all_forms(shape, Tolerance{2e-2, 2e-2, 2e-3}, 7);
  }
}

AttentionShape attention_shape(AttentionPart part, std::int64_t time, std::int64_t keys, std::int64_t size) {
  return {.part = part,
          .batch = 2,
          .heads = 4,
          .key_heads = 2,
          .time = time,
          .keys = keys,
          .size = size,
          .value_size = size,
          .causal = true};
}

TEST(TunedForms, OfAttentionEqualTheReference) {
  AttentionShape shape = attention_shape(AttentionPart::forward, 70, 70, 24);
  shape.value_size = 40;
  expect_reference_in_all_forms(shape, f32_tolerance);
}

TEST(TunedForms, OfAttentionOverCachesEqualTheReference) {
  AttentionShape shape = attention_shape(AttentionPart::forward, 2, 120, 32);
  shape.cached = true;
  expect_reference_in_all_forms(shape, f32_tolerance, 3);
  shape.page_size = 24;
  expect_reference_in_all_forms(shape, f32_tolerance, 11);
}

// A test for each part, so that processes share them: software drivers take longer to compile these forms than any
// other, and minutes for the longest, which only ./dev test --full runs.
class TunedAttentionOnMatrices : public ::testing::TestWithParam<AttentionPart> {
 protected:
  void expect_reference_in_every(std::size_t every, bool long_ones) {
    const Target target = webgpu_target(device().backend());
    if (!target.f16) GTEST_SKIP() << "the device has no f16";
    AttentionShape shape = attention_shape(GetParam(), 40, 40, 32);
    shape.dtype = shape.key_dtype = DType::f16;
    std::vector<KernelForm> forms;
    for (const KernelForm& form : wgsl::candidates(target, shape)) {
      const AttentionForm& attention = std::get<AttentionForm>(form);
      const bool is_long = attention.kind == AttentionForm::Kind::matrices &&
                           attention.matrices.blocks * attention.matrices.tile_rows > 32;
      if (is_long == long_ones) forms.push_back(form);
    }
    std::vector<KernelForm> some;
    for (std::size_t i = 0; i < forms.size(); i += every) some.push_back(forms[i]);
    expect_reference_in_forms(shape, Tolerance{1e-2, 3e-3, 1e-2}, some);
  }
};
const auto every_part = ::testing::Values(AttentionPart::forward, AttentionPart::dq, AttentionPart::dkv);
INSTANTIATE_TEST_SUITE_P(Parts, TunedAttentionOnMatrices, every_part);

TEST_P(TunedAttentionOnMatrices, EqualsTheReferenceInTunedForms) { expect_reference_in_every(17, false); }

class LongAttentionOnMatrices : public TunedAttentionOnMatrices {};
INSTANTIATE_TEST_SUITE_P(OtherForms, LongAttentionOnMatrices, every_part);

TEST_P(LongAttentionOnMatrices, EqualsTheReferenceInTunedForms) { expect_reference_in_every(17, true); }

TEST(TunedForms, OfAttentionsGradientEqualTheReference) {
  for (const AttentionPart part : {AttentionPart::dq, AttentionPart::dkv})
    for (const std::int64_t time : {70, 300})  // terms of rows are computed where they are needed, or before
      expect_reference_in_all_forms(attention_shape(part, time, time, 24), f32_tolerance, time > 256 ? 3 : 1);
}

TEST(TunedForms, OfRowsAndColumnsEqualTheReference) {
  expect_reference_in_all_forms(RowShape{9, 200}, f32_tolerance);
  expect_reference_in_all_forms(RowShape{3, 1030}, f32_tolerance);
  expect_reference_in_all_forms(ColumnShape{130, 700, 1}, Tolerance{1e-4, 1e-4, 2e-5}, 2);
  expect_reference_in_all_forms(ColumnShape{1024, 1024, 4}, Tolerance{1e-4, 1e-4, 2e-5}, 9);
}

// Attention with options that are not part of a shape uses the untuned form.
TEST(TunedForms, AreNotUsedForOtherAttention) {
  const AttentionShape shape = attention_shape(AttentionPart::forward, 70, 70, 24);
  const auto text = [&](const Target& target, double soft_cap) {
    Program program = lower(trace([&] {
                              const Tensor q = tensor_input("q", {2, 4, 70, 24}), k = tensor_input("k", {2, 2, 70, 24});
                              output("y", attention(q, k, k, {.causal = true, .soft_cap = soft_cap}));
                            }),
                            target);
    emit_wgsl(program, target);
    return print_gpu(program);
  };
  const Target tuned =
      tuned_for(shape, AttentionForm{.kind = AttentionForm::Kind::tiles, .tile_rows = 32, .depth = 16});
  EXPECT_NE(text(tuned, 0), text(gpu_target(), 0));
  EXPECT_EQ(text(tuned, 3), text(gpu_target(), 3));
}

// A form on subgroup matrices has requirements that are not part of a shape, such as rows that begin at multiples of
// four.
TEST(TunedForms, OnMatricesAreNotUsedForRowsThatTheyCannotRead) {
  AttentionShape shape = attention_shape(AttentionPart::forward, 40, 40, 32);
  shape.dtype = shape.key_dtype = DType::f16;
  shape.batch = 1;
  const auto text = [&](const Target& target, std::int64_t width) {
    Program program = lower(trace([&] {
                              const Tensor rows = tensor_input("q", {1, 4, 40, width}, DType::f16);
                              const Tensor q = slice(rows, 3, 0, 32);
                              const Tensor k = tensor_input("k", {1, 2, 40, 32}, DType::f16);
                              output("y", attention(q, k, k, {.causal = true}));
                            }),
                            target);
    EXPECT_EQ(wgsl::kernel_shapes(program, target).front(), KernelShape(shape));
    emit_wgsl(program, target);
    return print_gpu(program);
  };
  AttentionForm form{.kind = AttentionForm::Kind::matrices};
  form.matrices.blocks = 1;
  const Target tuned = tuned_for(shape, form);
  EXPECT_NE(text(tuned, 36), text(gpu_target(), 36));
  EXPECT_EQ(text(tuned, 33), text(gpu_target(), 33));
}

TEST(TunedForms, AreChosenOnlyForTheirShape) {
  const ProductShape shape = f32_shape(1024, 256, 768);
  const MatmulForm form{MatmulForm::Kind::tiles, 128, 128, 8, 8, 8};
  const Target tuned = tuned_for(shape, form);
  EXPECT_NE(text_of(shape, tuned), text_of(shape, gpu_target()));
  EXPECT_NE(text_of(shape, tuned).find("matmul of 48 workgroups"), std::string::npos);
  const ProductShape other = f32_shape(1024, 256, 512);
  EXPECT_EQ(text_of(other, tuned), text_of(other, gpu_target()));
}

TEST(TunedForms, ForVectorsAndQuantisedWeightsAreChosen) {
  ProductShape vector = f32_shape(1, 1024, 768);
  vector.a = vector.b = DType::f16;
  ProductShape quantised = f32_shape(1, 1024, 768);
  quantised.b = DType::i4;
  quantised.mins = true;
  for (const ProductShape& shape : {vector, quantised}) {
    std::set<std::string> texts{text_of(shape, gpu_target())};
    for (const KernelForm& form : wgsl::candidates(gpu_target(), shape))
      texts.insert(text_of(shape, tuned_for(shape, form)));
    EXPECT_GT(texts.size(), 3u) << shape.str();
  }
}

// Also with two products of four rows, and with the sums of the norm before them.
TEST(TunedForms, OfVectorsFitTheWorkgroupMemory) {
  ProductShape shape = f32_shape(4, 1024, 768);
  shape.products = 2;
  Target target = gpu_target();
  target.workgroup_bytes = 16384;
  const Graph graph = trace([&] {
    const Tensor x = rms_norm(tensor_input("x", {4, 1024}), tensor_input("norm", {1024}));
    const auto product = [&](const char* name) {
      return matmul(x, tensor_input(name, {768, 1024}), {.transpose_b = true});
    };
    const Tensor gate = silu(product("gate"));
    const Tensor up = product("up");
    output("y", matmul(gate * up, tensor_input("down", {1024, 768}), {.transpose_b = true}));
  });
  const std::vector<KernelForm> forms = wgsl::candidates(target, shape);
  ASSERT_GT(forms.size(), 5U);
  for (const KernelForm& form : forms) {
    const Target tuned = tuned_for(shape, form, target);
    Program program = lower(graph, tuned);
    emit_wgsl(program, tuned);
    ASSERT_EQ(program.gpu.steps.size(), 2U);
    EXPECT_LE(program.gpu.shaders[0].workgroup_bytes, target.workgroup_bytes) << describe(form);
  }
}

// On subgroup matrices only where both operands are f16.
TEST(TunedForms, AreNotUsedForProblemsThatTheyDoNotSuit) {
  const ProductShape shape = f32_shape(64, 66, 64);
  const KernelForm form = MatmulForm{MatmulForm::Kind::matrices, 32, 64, 32, 16, 32, 8};
  EXPECT_EQ(text_of(shape, tuned_for(shape, form)), text_of(shape, gpu_target()));
}

// With a prologue the tiles of f16 operands hold f32, which takes twice the memory.
TEST(TunedForms, AreNotUsedIfTheirTilesDoNotFit) {
  ProductShape shape = f32_shape(256, 64, 256);
  shape.a = shape.b = DType::f16;
  shape.transpose_a = true;
  const MatmulForm form{MatmulForm::Kind::tiles, 128, 128, 16, 8, 8};
  Target untuned = gpu_target();
  untuned.workgroup_bytes = 16384;
  const Target target = tuned_for(shape, form, untuned);
  ASSERT_LE(form.workgroup_bytes(2), target.workgroup_bytes);
  ASSERT_GT(form.workgroup_bytes(4), target.workgroup_bytes);
  EXPECT_NE(text_of(shape, target), text_of(shape, untuned));
  Program program = lower(trace([&] {
                            const Tensor a = tensor_input("a", {shape.inner, shape.rows}, DType::f16);
                            const Tensor b = tensor_input("b", {shape.columns, shape.inner}, DType::f16);
                            output("y", matmul(relu(a), b, {.transpose_a = true, .transpose_b = true}));
                          }),
                          target);
  ASSERT_EQ(wgsl::kernel_shapes(program, target), std::vector<KernelShape>{shape});
  emit_wgsl(program, target);
  for (const ShaderSource& shader : program.gpu.shaders) EXPECT_LE(shader.workgroup_bytes, target.workgroup_bytes);
}

// Teams are of tiles of f32.
TEST(TunedForms, OfTeamsAreNotUsedForHalves) {
  ProductShape shape = f32_shape(256, 64, 256);
  shape.a = shape.b = DType::f16;
  MatmulForm form{MatmulForm::Kind::tiles, 32, 32, 32, 4, 4};
  form.teams = 2;
  EXPECT_EQ(text_of(shape, tuned_for(shape, form)), text_of(shape, gpu_target()));
}

TunedFile example() {
  TunedFile file{"A GPU", "its driver 1.2", {}};
  MatmulForm tiles{MatmulForm::Kind::tiles, 64, 64, 16, 8, 4};
  file.kernels.push_back({f32_shape(1024, 256, 768), tiles, 1e-5, 2e-5});
  ProductShape quantised{DType::f16, DType::i4, true, false, true, 1, 4096, 1024, 2};
  file.kernels.push_back({quantised, wgsl::candidates(gpu_target(), quantised).at(3), 1.5e-6, 2.5e-6});
  const KernelShape others[] = {attention_shape(AttentionPart::forward, 1, 500, 64),
                                attention_shape(AttentionPart::dkv, 128, 128, 32), RowShape{1024, 256},
                                ColumnShape{256, 1024, 1}};
  for (const KernelShape& shape : others)
    file.kernels.push_back({shape, wgsl::candidates(gpu_target(), shape).at(1), 1e-6, 2e-6});
  return file;
}

TEST(TunedFiles, AreReadAsTheyWereWritten) {
  const TunedFile file = example();
  const TunedFile read = wgsl::parse_tuned_file(to_json(file), "tuned.json");
  EXPECT_EQ(read, file);
  wgsl::check_forms(read, gpu_target(), "tuned.json");
  const auto forms = wgsl::forms_of(read, gpu_target());
  ASSERT_EQ(forms->forms().size(), 6u);
  for (const TunedFile::Kernel& kernel : file.kernels) EXPECT_EQ(forms->forms().at(kernel.shape), kernel.form);
}

std::string with(std::string text, const std::string& part, const std::string& other) {
  const auto at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), other);
}

TEST(TunedFiles, AreRefusedIfTheyAreDamaged) {
  const std::string text = to_json(example());
  const std::pair<std::string, std::string> table[] = {
      {"", "not valid JSON"},
      {text.substr(0, text.size() / 2), "not valid JSON"},
      {"{\"device\": \"A GPU\", \"device\": \"B\"}", "the key \"device\" occurs twice"},
      {"[]", "not a file written by jerboa tune"},
      {"{}", "not a file written by jerboa tune"},
      {with(text, "forms\": 2", "forms\": 7"), "written by another version of jerboa (format 7, not 2)"},
      {with(text, "forms\": 2", "forms\": 1"), "written by another version of jerboa (format 1, not 2)"},
      {with(text, "forms\": 2", "forms\": \"a\\n" + std::string(200, 'b') + "\""),
       "written by another version of jerboa (format \"a\\n" + std::string(36, 'b') + "…, not 2)"},
      {with(text, "\"A GPU\"", "3"), "device is not a string"},
      {with(text, "\"device\": \"A GPU\",", ""), "device is missing"},
      {with(text, "\"kernels\"", "\"kernel\""), "kernels is not a list"},
      {with(text, "\"rows\": 1024", "\"rows\": -1"), "kernel 0: rows is not a whole number"},
      {with(text, "\"rows\": 1024", "\"rows\": 1e99"), "kernel 0: rows is not a whole number"},
      {with(text, "\"f32\"", "\"f33\""), "kernel 0: a is not the name of an element type"},
      {with(text, "\"mins\": false", "\"mins\": 0"), "kernel 0: mins is not true or false"},
      {with(text, "\"tiles\"", "\"bricks\\n\""), "kernel 0: there is no kind named \"bricks\\n\""},
      {with(text, "\"results\"", "\"result\""), "kernel 1: results is missing"},
      {with(text, "\"product\"", "\"produce\""), "kernel 0: there is no kind of kernel named \"produce\""},
      {with(text, "\"dkv\"", "\"dk\""), "kernel 3: there is no part named \"dk\""},
      {with(text, "\"keys_at_a_time\": 4,", ""), "kernel 2: keys_at_a_time is missing"},
      {with(text, "\"kept_lanes\"", "\"lanes\""), "kernel 5: kept_lanes is missing"},
      {with(text, "\"seconds\": 1e-05", "\"seconds\": \"soon\""), "kernel 0: seconds is not a number"}};
  for (const auto& [damaged, message] : table) try {
      wgsl::parse_tuned_file(damaged, "tuned.json");
      ADD_FAILURE() << "accepted, though " << message;
    } catch (const FileError& error) {
      const std::string text_of_error = error.what();
      EXPECT_TRUE(text_of_error.starts_with("tuned.json: " + message)) << text_of_error;
      EXPECT_TRUE(text_of_error.ends_with("; run jerboa tune again, or remove the file")) << text_of_error;
    }
}

// A form that the emitter cannot write, or that the device cannot run.
TEST(TunedFiles, AreRefusedIfAFormIsNotThere) {
  TunedFile file = example();
  std::get<MatmulForm>(file.kernels[0].form).part_rows = 7;
  try {
    wgsl::check_forms(file, gpu_target(), "tuned.json");
    ADD_FAILURE() << "accepted";
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()),
              "tuned.json: there is no form tiles of 64x64x16, parts of 7x4 for 1024x256x768 f32, transposed b; run "
              "jerboa tune again, or remove the file");
  }
  const auto fitting = wgsl::forms_of(file, gpu_target());
  EXPECT_EQ(fitting->forms().size(), 5u) << "the other ones are still there";
  EXPECT_TRUE(fitting->forms().contains(file.kernels[1].shape));
  Target small = gpu_target();
  small.workgroup_bytes = 2048;
  EXPECT_THROW(wgsl::check_forms(example(), small, "tuned.json"), FileError);
}

// Forms of every kind that a damaged file may ask for.
TEST(TunedFiles, AreRefusedIfAFormOfAnyKindIsNotThere) {
  const TunedFile file = example();
  const auto refused = [&](std::size_t number, const auto& damage) {
    TunedFile damaged = file;
    damage(damaged.kernels[number]);
    return !fits(damaged.kernels[number], gpu_target()) && fits(file.kernels[number], gpu_target());
  };
  EXPECT_TRUE(refused(2, [](auto& kernel) { std::get<AttentionForm>(kernel.form).keys_at_a_time = 3; }));
  EXPECT_TRUE(refused(2, [](auto& kernel) { std::get<AttentionForm>(kernel.form).parts = 1000; }));
  EXPECT_TRUE(refused(2, [](auto& kernel) { std::get<AttentionShape>(kernel.shape).key_heads = 0; }));
  EXPECT_TRUE(refused(2, [](auto& kernel) { kernel.form = RowForm{8}; }));
  EXPECT_TRUE(refused(3, [](auto& kernel) { std::get<AttentionForm>(kernel.form).tile_rows = 128; }));
  EXPECT_TRUE(refused(4, [](auto& kernel) { std::get<RowForm>(kernel.form).lanes = 48; }));
  EXPECT_TRUE(refused(5, [](auto& kernel) { std::get<ColumnForm>(kernel.form).kept_lanes = 3; }));
}

TEST(TunedFiles, MayHaveSizesThatCannotBeMultiplied) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  AttentionShape shape = attention_shape(AttentionPart::forward, most, 64, 64);
  EXPECT_FALSE(wgsl::candidates(gpu_target(), shape).empty());
  shape.batch = shape.heads = shape.key_heads = most;
  EXPECT_TRUE(wgsl::candidates(gpu_target(), shape).empty());
}

// Devices load the file that they are given, refuse a damaged one and ignore one of another device.
TEST(TunedFiles, AreLoadedByTheirDevice) {
  const TempFolder folder;
  const std::filesystem::path path = folder / "tuned.json";
  const auto opened = [&] { return make_webgpu_backend({.tuned_forms = path}); };
  EXPECT_THROW(opened(), FileError) << "it is not there";
  write_text(path, "{}");
  try {
    opened();
    ADD_FAILURE() << "opened with a damaged file";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
  }
  write_text(path, to_json(example()));
  EXPECT_EQ(webgpu_target(*opened()).tuned, nullptr) << "it is of another device";
  TunedFile file = example();
  const AdapterInfo adapter = webgpu_adapter(*make_webgpu_backend({.tuned_forms = ""}));
  file.device = adapter.name;
  file.driver = adapter.driver;
  file.kernels.resize(1);
  write_text(path, to_json(file));
  const auto backend = opened();
  ASSERT_NE(webgpu_target(*backend).tuned, nullptr);
  const auto& loaded = static_cast<const FormTable&>(*webgpu_target(*backend).tuned);
  EXPECT_EQ(loaded.forms().at(file.kernels[0].shape), file.kernels[0].form);
  std::get<MatmulForm>(file.kernels[0].form).part_rows = 7;
  write_text(path, to_json(file));
  EXPECT_THROW(opened(), FileError) << "a form does not fit";
}

using detail::best_of;
using detail::MeasuredForm;

MeasuredForm measured(int rows, bool agrees, double seconds, double untuned_seconds = 1) {
  return {MatmulForm{.kind = MatmulForm::Kind::tiles, .rows = rows}, agrees, seconds, untuned_seconds};
}

TEST(BestForm, IsTheFastestThatAgrees) {
  const std::vector<MeasuredForm> forms{measured(32, true, 0.9), measured(64, false, 0.1), measured(128, true, 0.5)};
  EXPECT_EQ(best_of(forms), &forms[2]);
}

TEST(BestForm, IsNoneThatSavesLittleOrDisagrees) {
  EXPECT_EQ(best_of({}), nullptr);
  EXPECT_EQ(best_of({measured(32, true, 0.98), measured(64, false, 0.1), measured(128, true, 1.5)}), nullptr);
}

// A form is compared with measurements taken next to it, not at another time.
TEST(BestForm, IsComparedWithNeighbouringMeasurements) {
  const std::vector<MeasuredForm> forms{measured(32, true, 0.5, 0.4), measured(64, true, 3, 5)};
  EXPECT_EQ(best_of(forms), &forms[1]);
  EXPECT_EQ(best_of({forms[0]}), nullptr);
}

// A fake device whose clock slows down with every run.
struct FakeClock {
  double factor = 1;
  int alive = 0, max_alive = 0;
};

class FakeKernel final : public detail::CompiledKernel {
 public:
  FakeKernel(FakeClock& clock, double seconds, double value) : clock_(clock), seconds_(seconds), value_(value) {
    clock_.max_alive = std::max(clock_.max_alive, ++clock_.alive);
  }
  ~FakeKernel() override { --clock_.alive; }
  HostTensor result() override {
    HostTensor result(DType::f32, {2});
    result.set_number(1, value_);
    return result;
  }
  double run() override { return seconds_ * (clock_.factor *= 1.002); }

 private:
  FakeClock& clock_;
  double seconds_, value_;
};

// Executables have the memory of a whole product, and there are dozens of forms, so only two exist at a time.
TEST(FormContest, ComparesTwoFormsAtATimeInTurns) {
  FakeClock clock;
  const auto product = [&](double seconds, double value) {
    return std::make_unique<FakeKernel>(clock, seconds, value);
  };
  int warmed = 0;
  detail::FormContest contest(product(1, 100), {.tolerance = 1e-3, .seconds = 0, .warm = [&] { ++warmed; }});
  const auto form = [](int rows) { return MatmulForm{.kind = MatmulForm::Kind::tiles, .rows = rows}; };
  contest.measure(form(1), product(0.5, 100.2));
  contest.measure(form(2), product(0.5, std::nan("")));
  for (int rows = 3; rows < 40; ++rows) contest.measure(form(rows), product(0.99, 100));
  contest.measure(form(40), product(0.9, 100.05));
  EXPECT_EQ(clock.max_alive, 2);
  EXPECT_EQ(warmed, 38) << "all but the two that disagree";
  ASSERT_EQ(contest.measured().size(), 40u);
  EXPECT_FALSE(contest.measured()[0].agrees);
  EXPECT_FALSE(contest.measured()[1].agrees) << "it is not a number";
  const MeasuredForm* best = best_of(contest.measured());
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->form, KernelForm(form(40))) << "although the clock was faster for the others";
  EXPECT_NEAR(best->seconds / best->untuned_seconds, 0.9, 0.01);
  EXPECT_GT(contest.untuned_seconds(), best->untuned_seconds);
}

TEST(TuneKernels, MeasuresThoseOfAGraphAndWritesAFile) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {16, 32}), w = tensor_input("w", {24, 32});
    output("y", relu(matmul(x, w, {.transpose_b = true})));
    output("z", matmul(x, w, {.transpose_b = true}) + 1);
    output("rows", softmax(x, -1));
    const Tensor q = tensor_input("q", {1, 20, 24});
    const Tensor attended = attention(q, q, q, {.heads = 2, .causal = true});
    output("attention", attended);
    output("gradient", vector_jacobian({attended}, {tensor_input("dout", {1, 20, 24})}, {q})[0]);
    output("columns", sum(tensor_input("long", {200, 12}), {0}));
    AttentionOptions cached{.causal = true};
    cached.lengths = tensor_input("lengths", {1}, DType::i32);
    cached.positions = tensor_input("positions", {1, 1}, DType::i32);
    const Tensor cache = tensor_input("cache", {1, 2, 16, 8});
    output("cached", attention(tensor_input("query", {1, 2, 1, 8}), cache, cache, cached));
  });
  std::map<std::string, TunedKernel> reported;
  WebGpuOptions of_device{.tuned_forms = ""};
  of_device.target = gpu_target();
  const Device chosen = Device::webgpu(of_device);
  const auto tune = [&](const TuneOptions& options) {
    TuneOptions with_report = options;
    with_report.seconds = 1e-3;
    with_report.report = [&](const TunedKernel& kernel) { reported.emplace(kernel.shape, kernel); };
    with_report.skipped = [](const std::string& form, const std::string& why) { ADD_FAILURE() << form << ": " << why; };
    return tune_kernels(chosen, {graph}, with_report);
  };
  const std::string text = tune({.kinds = {TunedKind::rows, TunedKind::columns, TunedKind::attention}});
  for (const char* shape :
       {"16 rows of 32", "12 columns of 200", "attention: 1x2 heads of 12, 20 queries on 20 keys, f32, causal",
        "gradient of attention for queries: 1x2 heads of 12, 20 queries on 20 keys, f32, causal",
        "gradient of attention for keys: 1x2 heads of 12, 20 queries on 20 keys, f32, causal",
        "attention: 1x2 heads of 8, 1 queries on 16 keys, f32, causal, cached"})
    EXPECT_TRUE(reported.contains(shape)) << shape;
  EXPECT_EQ(reported.size(), 6u);
  for (const auto& [shape, kernel] : reported) {
    EXPECT_GT(kernel.forms, 1) << shape;
    EXPECT_GT(kernel.seconds, 0) << shape;
  }
  const TunedFile file = wgsl::parse_tuned_file(text, "what was tuned");
  EXPECT_EQ(file.device, webgpu_adapter(chosen.backend()).name);
  wgsl::check_forms(file, webgpu_target(chosen.backend()), "what was tuned");
  EXPECT_THROW(tune_kernels(Device::cpu(), {graph}), UsageError);
}

}  // namespace
}  // namespace jerboa::test::tuned_test
