#include "wgsl/product/tuned.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/runtime/tune.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "runtime/form_contest.h"
#include "support/temp_folder.h"
#include "verify/compare.h"
#include "wgsl/half_products.h"
#include "wgsl/shared_device.h"

// Forms of products that were measured: their file, their choice, and that each computes what the reference does.
// Without an adapter the tests fail and say why.
namespace jerboa::test::tuned_test {
namespace {

using wgsl::MatmulForm;
using wgsl::ProductForm;
using wgsl::ProductShape;
using wgsl::QuantisedForm;
using wgsl::TunedFile;

// The kernels for GPUs, whatever the driver.
Target gpu_target() {
  Target target = Target::webgpu_default();
  target.f16 = true;
  target.subgroup_matrices = SubgroupMatrices::emulated;
  target.resident_workgroups = 264;
  return target;
}

const Device& device() {
  return shared_device(0, [](int) { return WebGpuOptions{.target = gpu_target()}; });
}

Target tuned_for(const ProductShape& shape, const ProductForm& form) {
  Target target = gpu_target();
  target.tuned = std::make_shared<wgsl::TunedForms>(std::map<ProductShape, ProductForm>{{shape, form}});
  return target;
}

ProductShape f32_shape(std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  return {.transpose_b = true, .rows = rows, .inner = inner, .columns = columns};
}

Sample sample_of(const ProductShape& shape) {
  Sample sample;
  sample.graph = trace([&] {
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
  });
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

std::string text_of(const ProductShape& shape, const Target& target) {
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
  return {{"y", executable->run({inputs, {}, {}})->read("y")}};
}

// Every `every`-th form; software drivers compile slowly. Sizes fill no tile.
void expect_reference_in_all_forms(const ProductShape& shape, const Tolerance& tolerance, std::size_t every = 1) {
  const Sample sample = sample_of(shape);
  const Target target = webgpu_target(device().backend());
  const std::vector<ProductForm> forms = wgsl::candidates(target, shape);
  ASSERT_FALSE(forms.empty());
  std::set<std::string> texts;
  for (std::size_t i = 0; i < forms.size(); i += every) {
    SCOPED_TRACE(shape.str() + ": " + describe(forms[i]));
    Target tuned = target;
    tuned.tuned = std::make_shared<wgsl::TunedForms>(std::map<ProductShape, ProductForm>{{shape, forms[i]}});
    Program program = lower(sample.graph, tuned);
    EXPECT_EQ(wgsl::product_shapes(program, tuned), std::vector{shape});
    texts.insert(text_of(shape, tuned));
    expect_reference(sample, computed(sample, tuned), "in a tuned form", tolerance);
  }
  EXPECT_EQ(texts.size(), (forms.size() + every - 1) / every) << "forms that make no difference";
}

constexpr Tolerance f32_tolerance{1e-4, 1e-4, 2e-6};

TEST(TunedForms, OfF32EqualTheReference) { expect_reference_in_all_forms(f32_shape(68, 100, 68), f32_tolerance, 6); }

// All of them, which only ./dev test --full runs.
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
  const auto is_on_matrices = [](const ProductForm& form) {
    return std::get<MatmulForm>(form).kind == MatmulForm::Kind::matrices;
  };
  const std::vector<ProductForm> forms = wgsl::candidates(webgpu_target(device().backend()), shape);
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

TEST(TunedForms, AreChosenForTheirShapeAlone) {
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
    for (const ProductForm& form : wgsl::candidates(gpu_target(), shape))
      texts.insert(text_of(shape, tuned_for(shape, form)));
    EXPECT_GT(texts.size(), 3u) << shape.str();
  }
}

// On subgroup matrices only where both operands are f16, which a file cannot know of every product.
TEST(TunedForms, AreNotUsedForProblemsThatTheyDoNotSuit) {
  ProductShape shape = f32_shape(64, 66, 64);
  shape.a = shape.b = DType::f16;
  const ProductForm form = MatmulForm{MatmulForm::Kind::matrices, 32, 64, 32, 16, 32, 8};
  EXPECT_EQ(text_of(shape, tuned_for(shape, form)), text_of(shape, gpu_target()));
}

// With a prologue the tiles of f16 operands hold f32, which takes twice the memory.
TEST(TunedForms, AreNotUsedIfTheirTilesDoNotFit) {
  ProductShape shape = f32_shape(256, 64, 256);
  shape.a = shape.b = DType::f16;
  shape.transpose_a = true;
  const MatmulForm form{MatmulForm::Kind::tiles, 128, 128, 16, 8, 8};
  const Target target = tuned_for(shape, form);
  ASSERT_LE(form.workgroup_bytes(2), target.workgroup_bytes);
  ASSERT_GT(form.workgroup_bytes(4), target.workgroup_bytes);
  EXPECT_NE(text_of(shape, target), text_of(shape, gpu_target()));
  Program program = lower(trace([&] {
                            const Tensor a = tensor_input("a", {shape.inner, shape.rows}, DType::f16);
                            const Tensor b = tensor_input("b", {shape.columns, shape.inner}, DType::f16);
                            output("y", matmul(relu(a), b, {.transpose_a = true, .transpose_b = true}));
                          }),
                          target);
  ASSERT_EQ(wgsl::product_shapes(program, target), std::vector{shape});
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
  file.products.push_back({f32_shape(1024, 256, 768), tiles, 1e-5, 2e-5});
  ProductShape quantised{DType::f16, DType::i4, true, false, true, 1, 4096, 1024, 2};
  file.products.push_back({quantised, wgsl::candidates(gpu_target(), quantised).at(3), 1.5e-6, 2.5e-6});
  return file;
}

TEST(TunedFiles, AreReadAsTheyWereWritten) {
  const TunedFile file = example();
  const TunedFile read = wgsl::parse_tuned_file(to_json(file), "tuned.json");
  EXPECT_EQ(read, file);
  wgsl::check_forms(read, gpu_target(), "tuned.json");
  const auto forms = wgsl::forms_of(read, gpu_target());
  ASSERT_EQ(forms->forms.size(), 2u);
  EXPECT_EQ(forms->forms.at(file.products[0].shape), file.products[0].form);
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
      {with(text, "forms\": 1", "forms\": 7"), "written by another version of jerboa (format 7, not 1)"},
      {with(text, "forms\": 1", "forms\": \"a\\n" + std::string(200, 'b') + "\""),
       "written by another version of jerboa (format \"a\\n" + std::string(36, 'b') + "…, not 1)"},
      {with(text, "\"A GPU\"", "3"), "device is not a string"},
      {with(text, "\"device\": \"A GPU\",", ""), "device is missing"},
      {with(text, "\"products\"", "\"product\""), "products is not a list"},
      {with(text, "\"rows\": 1024", "\"rows\": -1"), "product 0: rows is not a whole number"},
      {with(text, "\"rows\": 1024", "\"rows\": 1e99"), "product 0: rows is not a whole number"},
      {with(text, "\"f32\"", "\"f33\""), "product 0: a is not the name of an element type"},
      {with(text, "\"mins\": false", "\"mins\": 0"), "product 0: mins is not true or false"},
      {with(text, "\"tiles\"", "\"bricks\\n\""), "product 0: there is no form named \"bricks\\n\""},
      {with(text, "\"results\"", "\"result\""), "product 1: results is missing"},
      {with(text, "\"seconds\": 1e-05", "\"seconds\": \"soon\""), "product 0: seconds is not a number"}};
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
  std::get<MatmulForm>(file.products[0].form).part_rows = 7;
  EXPECT_THROW(wgsl::check_forms(file, gpu_target(), "tuned.json"), FileError);
  const auto fitting = wgsl::forms_of(file, gpu_target());
  EXPECT_EQ(fitting->forms.size(), 1u) << "the other one is still there";
  EXPECT_TRUE(fitting->forms.contains(file.products[1].shape));
  Target small = gpu_target();
  small.workgroup_bytes = 2048;
  EXPECT_THROW(wgsl::check_forms(example(), small, "tuned.json"), FileError);
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
  file.products.resize(1);
  write_text(path, to_json(file));
  const auto backend = opened();
  ASSERT_NE(webgpu_target(*backend).tuned, nullptr);
  EXPECT_EQ(webgpu_target(*backend).tuned->forms.at(file.products[0].shape), file.products[0].form);
  std::get<MatmulForm>(file.products[0].form).part_rows = 7;
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

// A form is faster than what was measured beside it, not than what was measured at another time.
TEST(BestForm, IsComparedWithWhatWasMeasuredBesideIt) {
  const std::vector<MeasuredForm> forms{measured(32, true, 0.5, 0.4), measured(64, true, 3, 5)};
  EXPECT_EQ(best_of(forms), &forms[1]);
  EXPECT_EQ(best_of({forms[0]}), nullptr);
}

// A device whose clock slows down with every run.
struct FakeClock {
  double factor = 1;
  int alive = 0, most_alive = 0;
};

class FakeProduct final : public detail::CompiledProduct {
 public:
  FakeProduct(FakeClock& clock, double seconds, double value) : clock_(clock), seconds_(seconds), value_(value) {
    clock_.most_alive = std::max(clock_.most_alive, ++clock_.alive);
  }
  ~FakeProduct() override { --clock_.alive; }
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

// Executables have the memory of a whole product, and there are dozens of forms.
TEST(FormContest, ComparesTwoFormsAtATimeInTurns) {
  FakeClock clock;
  const auto product = [&](double seconds, double value) {
    return std::make_unique<FakeProduct>(clock, seconds, value);
  };
  int warmed = 0;
  detail::FormContest contest(product(1, 100), {.tolerance = 1e-3, .seconds = 0, .warm = [&] { ++warmed; }});
  const auto form = [](int rows) { return MatmulForm{.kind = MatmulForm::Kind::tiles, .rows = rows}; };
  contest.measure(form(1), product(0.5, 100.2));
  contest.measure(form(2), product(0.5, std::nan("")));
  for (int rows = 3; rows < 40; ++rows) contest.measure(form(rows), product(0.99, 100));
  contest.measure(form(40), product(0.9, 100.05));
  EXPECT_EQ(clock.most_alive, 2);
  EXPECT_EQ(warmed, 38) << "all but the two that disagree";
  ASSERT_EQ(contest.measured().size(), 40u);
  EXPECT_FALSE(contest.measured()[0].agrees);
  EXPECT_FALSE(contest.measured()[1].agrees) << "it is not a number";
  const MeasuredForm* best = best_of(contest.measured());
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->form, ProductForm(form(40))) << "although the clock was faster for the others";
  EXPECT_NEAR(best->seconds / best->untuned_seconds, 0.9, 0.01);
  EXPECT_GT(contest.untuned_seconds(), best->untuned_seconds);
}

TEST(TuneProducts, MeasuresThoseOfAGraphAndWritesAFile) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {16, 32}), w = tensor_input("w", {24, 32});
    output("y", relu(matmul(x, w, {.transpose_b = true})));
    output("z", matmul(x, w, {.transpose_b = true}) + 1);
  });
  std::vector<TunedProduct> reported;
  const Device chosen = Device::webgpu({.tuned_forms = ""});
  const std::string text = tune_products(
      chosen, {graph}, {.seconds = 1e-3, .report = [&](const TunedProduct& product) { reported.push_back(product); }});
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0].shape, "16x32x24 f32, transposed b");
  EXPECT_GT(reported[0].forms, 1);
  EXPECT_GT(reported[0].seconds, 0);
  const TunedFile file = wgsl::parse_tuned_file(text, "what was tuned");
  EXPECT_EQ(file.device, webgpu_adapter(chosen.backend()).name);
  wgsl::check_forms(file, webgpu_target(chosen.backend()), "what was tuned");
  EXPECT_THROW(tune_products(Device::cpu(), {graph}), UsageError);
}

}  // namespace
}  // namespace jerboa::test::tuned_test
