#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>

#include "ops/sample.h"
#include "ops/sixteen_bits.h"
#include "support/packed_checks.h"
#include "support/random_graph.h"

// WebGPU against the reference in f64, over the sample cases of every op, forward and gradient. Without an
// adapter the tests fail and say why.
namespace jerboa::test {
namespace {

// The kernels that suit the available driver: on a software driver, those for software drivers.
WebGpuOptions as_it_is() {
  WebGpuOptions options;
  options.sentinel = 7e8f;
  return options;
}

WebGpuOptions with_f32_arithmetic() {
  WebGpuOptions options = as_it_is();
  options.f16_arithmetic = false;
  return options;
}

// The kernels for GPUs, with only what every WebGPU device has.
WebGpuOptions as_a_plain_gpu() {
  WebGpuOptions options = as_it_is();
  options.default_limits = true;
  options.use_f16 = options.use_subgroups = false;
  options.target = Target::webgpu_default();
  return options;
}

// The kernels for GPUs, with everything that the driver has.
WebGpuOptions as_a_rich_gpu() {
  WebGpuOptions options = as_it_is();
  options.target = Target::webgpu_default();
  options.target->max_bindings = 1 << 20;
  options.target->max_binding_bytes = options.target->max_buffer_bytes = std::int64_t{1} << 40;
  options.target->workgroup_bytes = 1 << 20;
  options.target->subgroup_size = 1024;
  options.target->f16 = true;
  return options;
}

WebGpuOptions with_one_kernel_per_node() {
  WebGpuOptions options = as_it_is();
  options.target = Target::webgpu_default();
  options.target->software = true;
  options.target->fuse = options.target->plan = false;
  return options;
}

// Limits so low that operands share bindings, and dispatches of a few workgroups take two dimensions.
WebGpuOptions with_few_bindings_and_workgroups() {
  WebGpuOptions options = as_a_plain_gpu();
  options.target->max_bindings = 5;
  options.target->max_workgroups = 3;
  return options;
}

// Bindings so small that tensors of this many bytes are bound in this many parts.
WebGpuOptions with_small_bindings(std::int64_t largest, std::int64_t parts) {
  WebGpuOptions options = as_a_rich_gpu();
  options.target->f16 = false;
  options.target->max_binding_bytes = std::max<std::int64_t>(1, (largest + parts * 256 - 1) / (parts * 256)) * 256;
  return options;
}

std::int64_t largest_tensor(const Graph& graph) {
  std::int64_t largest = 0;
  for (const TensorInfo& tensor : graph.tensors)
    largest = std::max(largest, element_count(tensor.type.shape).upper_bound() * bits(tensor.type.dtype) / 8);
  return largest;
}

// One device for all tests of a process: pipelines are shared.
const Device& device_with(WebGpuOptions (*options)()) {
  static std::map<WebGpuOptions (*)(), Device> devices;
  const auto found = devices.find(options);
  return found != devices.end() ? found->second : devices.emplace(options, Device::webgpu(options())).first->second;
}

std::string op_name(const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); }

// The gradients of an op are other ops, each of which has its own test here: one case shows that they work together,
// and the CPU engine's tests have them all. Software drivers take minutes to compile the rest.
enum class Gradients { of_the_first_case, of_every_case };

bool is_each(Op, const Case&) { return true; }

// Attention binds the same for heads of any size: the operands of the cases with large heads that are not paged are
// those of cases with small ones, whose shaders compile in a fraction of the time.
bool binds_as_no_other(Op op, const Case& one) {
  if (op != Op::attention && op != Op::attention_weights) return true;
  const Draw &q = one.operands.front(), &table = one.operands.back();
  return q.shape.back().upper_bound() < 64 || table.kind != Draw::Kind::absent;
}

void check(Op op, WebGpuOptions (*options)(), const char* what, Gradients gradients,
           bool (*is_wanted)(Op, const Case&) = is_each) {
  const auto& cases = cases_of(op);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!is_wanted(op, cases[i])) continue;
    SCOPED_TRACE(describe(op, i, cases[i]));
    const bool with_gradient = i == 0 || gradients == Gradients::of_every_case;
    const Sample sample = with_gradient ? sample_of(op, cases[i]) : forward_sample_of(op, cases[i], DType::f32);
    expect_reference(sample, outputs_on(device_with(options), sample), what);
  }
}

// Products are multiplied in f32; those in f16 have separate tests.
void check_in_sixteen_bits(Op op, const Case& one, const Sample& sample, DType floats) {
  EXPECT_EQ(SixteenBits(sample).difference(outputs_on(device_with(with_f32_arithmetic), sample)), std::nullopt)
      << "in " << name(floats) << ": " << describe(op, 0, one);
}

class WebGpuOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, WebGpuOp, ::testing::ValuesIn(computed_ops()), op_name);

TEST_P(WebGpuOp, EqualsTheReference) { check(GetParam(), as_it_is, "as it is", Gradients::of_the_first_case); }
TEST_P(WebGpuOp, EqualsTheReferenceAsAPlainGpu) {
  check(GetParam(), as_a_plain_gpu, "as a plain GPU", Gradients::of_the_first_case);
}
TEST_P(WebGpuOp, EqualsTheReferenceWithFewBindingsAndWorkgroups) {
  check(GetParam(), with_few_bindings_and_workgroups, "with few bindings and workgroups", Gradients::of_the_first_case,
        binds_as_no_other);
}
// One case of each op, since shaders take long to compile.
TEST_P(WebGpuOp, EqualsTheReferenceInSixteenBits) {
  for (const DType floats : {DType::f16, DType::bf16})
    for (const Case& one : cases_of(GetParam())) {
      const std::vector<Sample> samples = sixteen_bit_samples(GetParam(), one, floats);
      if (samples.empty()) continue;
      check_in_sixteen_bits(GetParam(), one, samples.back(), floats);
      break;
    }
}

// The additional tests of ./dev test --full: more kinds of devices, and the gradients of every case.
class WebGpuOpElsewhere : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(OtherForms, WebGpuOpElsewhere, ::testing::ValuesIn(computed_ops()), op_name);

TEST_P(WebGpuOpElsewhere, EqualsTheReferenceInSixteenBits) {
  for (const DType floats : {DType::f16, DType::bf16})
    for (const Case& one : cases_of(GetParam()))
      for (const Sample& sample : sixteen_bit_samples(GetParam(), one, floats))
        check_in_sixteen_bits(GetParam(), one, sample, floats);
}

TEST_P(WebGpuOpElsewhere, EqualsTheReferenceAsARichGpu) {
  check(GetParam(), as_a_rich_gpu, "as a rich GPU", Gradients::of_every_case);
}
TEST_P(WebGpuOpElsewhere, EqualsTheReferenceWithFewBindingsAndWorkgroups) {
  check(GetParam(), with_few_bindings_and_workgroups, "with few bindings and workgroups", Gradients::of_the_first_case);
}
TEST_P(WebGpuOpElsewhere, EqualsTheReferenceUnfused) {
  check(GetParam(), with_one_kernel_per_node, "unfused", Gradients::of_every_case);
}
TEST_P(WebGpuOpElsewhere, EqualsTheReferenceWithSmallBindings) {
  // A kernel of attention's gradient binds six such tensors, which would be too many bindings in three parts each; that
  // of linear attention binds workspaces that are several times as large.
  const std::map<Op, std::int64_t> fewer{
      {Op::attention, 2}, {Op::attention_grad, 2}, {Op::linear_attention, 1}, {Op::linear_attention_grad, 1}};
  const std::int64_t parts = fewer.contains(GetParam()) ? fewer.at(GetParam()) : 3;
  std::map<std::int64_t, Device> devices;
  const auto& cases = cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    const Sample sample = sample_of(GetParam(), cases[i]);
    const WebGpuOptions options = with_small_bindings(largest_tensor(sample.graph), parts);
    const std::int64_t limit = options.target->max_binding_bytes;
    if (!devices.contains(limit)) devices.emplace(limit, Device::webgpu(options));
    expect_reference(sample, outputs_on(devices.at(limit), sample), "with small bindings");
  }
}

TEST(WebGpuCaches, In8BitsHoldTheNearest) {
  expect_nearest_rows(device_with(as_it_is));
  expect_nearest_rows(device_with(as_a_plain_gpu));
}

// Fewer and smaller than on the CPU engine: each is some ten shaders that no other test compiles.
class WebGpuRandomGraph : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, WebGpuRandomGraph, ::testing::Range(100u, 112u));

TEST_P(WebGpuRandomGraph, EqualsTheReference) {
  const Differentiated it = random_graph(GetParam(), 16);
  const Sample sample{it.graph, it.inputs};
  auto* const options = GetParam() % 2 == 0 ? as_it_is : as_a_plain_gpu;
  expect_reference(sample, outputs_on(device_with(options), sample), "a random graph", {1e-3, 1e-4, 1e-4});
}

}  // namespace
}  // namespace jerboa::test
