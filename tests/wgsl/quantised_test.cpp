#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "verify/compare.h"

// Products with int8 and int4 weights, large enough for the forms that GPUs get, against the reference in f64: with and
// without f16, subgroups (of the size that the device has) and minimums, at sizes that leave some threads without work.
// Without an adapter the tests fail and say why.
namespace jerboa::test::quantised_test {
namespace {

enum class Form { plain, exact_halves, halves, subgroups, subgroups_exact, matrices, blocks, shared_blocks };

Target target_of(Form form) {
  Target target = Target::webgpu_default();
  target.f16 = form != Form::plain;
  target.f16_arithmetic = form != Form::exact_halves && form != Form::subgroups_exact;
  if (form == Form::subgroups || form == Form::subgroups_exact || form == Form::shared_blocks)
    target.subgroup_size = 32;
  if (form == Form::matrices) target.subgroup_matrices = SubgroupMatrices::emulated;
  target.software = form == Form::blocks || form == Form::shared_blocks;
  return target;
}

const char* shader_of(Form form) {
  if (form == Form::matrices) return "matmul_matrices";
  return form == Form::blocks || form == Form::shared_blocks ? "quantised_blocks" : "quantised_matrix_vector";
}

bool rounds_to_halves(Form form, DType weights) {
  return form == Form::matrices || (weights == DType::i4 && (form == Form::halves || form == Form::subgroups));
}

// One device for each form for all tests of a process: pipelines are shared.
const Device& device(Form form) {
  static std::map<Form, Device> devices;
  const auto found = devices.find(form);
  if (found != devices.end()) return found->second;
  WebGpuOptions options;
  options.target = target_of(form);
  options.sentinel = 7e8F;
  return devices.emplace(form, Device::webgpu(options)).first->second;
}

struct Trial {
  std::string name;
  Form form;
  DType weights;
  std::int64_t rows, inner, columns;
  bool mins;
  DType floats = DType::f32;
};

std::ostream& operator<<(std::ostream& stream, const Trial& trial) { return stream << trial.name; }

std::vector<Trial> trials() {
  constexpr auto i4 = DType::i4, i8 = DType::i8;
  return {{"plain_int4", Form::plain, i4, 1, 1024, 70, true},
          {"plain_int8", Form::plain, i8, 2, 416, 90, false},
          {"exact_int4", Form::exact_halves, i4, 1, 416, 90, true},
          {"exact_int8", Form::exact_halves, i8, 1, 1024, 70, true},
          {"halves_int4", Form::halves, i4, 1, 1024, 70, true},
          {"halves_int4_several_rows", Form::halves, i4, 4, 416, 90, false},
          {"halves_int4_of_f16", Form::halves, i4, 1, 512, 64, true, DType::f16},
          {"two_groups_a_thread", Form::halves, i4, 1, 8992, 6, true},
          {"subgroups_int4", Form::subgroups, i4, 1, 1024, 70, true},
          {"subgroups_int4_not_full", Form::subgroups, i4, 3, 416, 90, false},
          {"subgroups_int8", Form::subgroups, i8, 1, 1024, 70, true},
          {"subgroups_exact_int4", Form::subgroups_exact, i4, 1, 608, 130, true},
          {"matrices_int4", Form::matrices, i4, 37, 416, 90, true},
          {"matrices_int4_without_mins", Form::matrices, i4, 20, 512, 64, false, DType::f16},
          {"matrices_int8", Form::matrices, i8, 37, 416, 90, true},
          {"blocks_int4", Form::blocks, i4, 37, 416, 92, true},
          {"blocks_int8", Form::blocks, i8, 8, 64, 36, false},
          {"shared_blocks_int4", Form::shared_blocks, i4, 37, 416, 92, true},
          {"shared_blocks_int4_of_f16", Form::shared_blocks, i4, 5, 96, 64, false, DType::f16},
          {"shared_blocks_int8", Form::shared_blocks, i8, 16, 64, 100, true}};
}

Sample sample_of(const Trial& trial) {
  const Shape groups{trial.columns, trial.inner / quantised_group};
  const double largest = trial.weights == DType::i4 ? 7 : 127;
  Case one{{any({trial.rows, trial.inner}),
            whole(trial.weights == DType::i4 ? -8 : -127, largest, {trial.columns, trial.inner}, trial.weights),
            within(0.01 / largest, 0.02 / largest, groups), trial.mins ? within(-0.01, 0.01, groups) : absent()}};
  Sample sample;
  sample.graph = trace([&] {
    const Instance instance = build(Op::matmul_quantised, one, sample.inputs, trial.floats);
    output("out", instance.outputs[0] * 2);  // in the epilogue
  });
  return sample;
}

class QuantisedProducts : public ::testing::TestWithParam<Trial> {};
INSTANTIATE_TEST_SUITE_P(Forms, QuantisedProducts, ::testing::ValuesIn(trials()),
                         [](const ::testing::TestParamInfo<Trial>& param) { return param.param.name; });

TEST_P(QuantisedProducts, EqualTheReferenceAndThemselves) {
  const Trial& trial = GetParam();
  const Sample sample = sample_of(trial);
  Program program = lower(sample.graph, target_of(trial.form));
  emit_wgsl(program, target_of(trial.form));
  EXPECT_NE(print_gpu(program).find(shader_of(trial.form)), std::string::npos) << print_gpu(program);
  const TensorMap computed = outputs_on(device(trial.form), sample);
  expect_same_bits(computed, outputs_on(device(trial.form), sample), "a second time");
  const bool halves = rounds_to_halves(trial.form, trial.weights) || trial.floats == DType::f16;
  expect_reference(sample, computed, "quantised", halves ? Tolerance{4e-3, 1e-3, 1e-3} : Tolerance{1e-4, 1e-5, 1e-5});
}

// Values that f16 cannot hold, and groups of zeros.
TEST(QuantisedRows, TakeRowsOfAnyMagnitude) {
  const Trial trial{"", Form::halves, DType::i4, 1, 1024, 64, true};
  Sample sample = sample_of(trial);
  std::vector<double>& row = sample.inputs.at("x0").data;
  for (std::size_t i = 0; i < row.size(); ++i) row[i] *= i < 32 ? 0 : i < 64 ? 1e-20 : i < 96 ? 1e6 : 1;
  // The largest group's products, of up to 2e6 * 0.02 each, decide what is lost to rounding.
  expect_reference(sample, outputs_on(device(trial.form), sample), "of any magnitude", {4e-3, 300, 1e-3});
}

// On subgroup matrices each row is multiplied as f16, whose range is a small part of that of f32.
TEST(QuantisedRows, TakeRowsOfAnyMagnitudeOnMatrices) {
  const double magnitudes[] = {1, 1e5, 1e36, 1e-30, 2e-38, 0};
  const Trial trial{"", Form::matrices, DType::i8, 6, 1024, 36, false};
  Sample sample = sample_of(trial);
  for (std::int64_t i = 0; i < trial.rows * trial.inner; ++i)
    sample.inputs.at("x0").data[static_cast<std::size_t>(i)] *= magnitudes[i / trial.inner];
  Program program = lower(sample.graph, target_of(trial.form));
  emit_wgsl(program, target_of(trial.form));
  EXPECT_NE(print_gpu(program).find("row_scales"), std::string::npos);
  const TensorMap outputs = outputs_on(device(trial.form), sample);
  const HostTensor& computed = outputs.at("out");
  const std::vector<double> wanted = reference_outputs(sample, [](Value&) {}).at(0).data;
  for (std::int64_t i = 0; i < computed.size(); ++i)
    ASSERT_NEAR(computed.number(i), wanted[static_cast<std::size_t>(i)], 0.01 * magnitudes[i / trial.columns]) << i;
}

// Rows of f16, such as those of mixed precision, are multiplied as they are.
TEST(QuantisedRows, AreNotScaledWhereTheyAreHalves) {
  const Sample sample = sample_of({"", Form::matrices, DType::i8, 8, 1024, 36, false, DType::f16});
  Program program = lower(sample.graph, target_of(Form::matrices));
  emit_wgsl(program, target_of(Form::matrices));
  const std::string text = print_gpu(program);
  EXPECT_NE(text.find("matmul_matrices"), std::string::npos);
  EXPECT_EQ(text.find("row_scales"), std::string::npos) << text;
}

}  // namespace
}  // namespace jerboa::test::quantised_test
