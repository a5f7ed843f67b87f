#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>

#include "ops/sample.h"

// WebGPU against the reference in f64, over the sample cases of every op, forward and gradient. Where no adapter can be
// had, the tests fail and say why.
namespace jerboa::test {
namespace {

// The kernels that the driver at hand gets: on a driver that runs on the CPU, those that suit it.
WebGpuOptions as_it_is() {
  WebGpuOptions options;
  options.sentinel = 7e8f;
  return options;
}

// The kernels that a GPU gets, with nothing but what every WebGPU device has.
WebGpuOptions as_a_plain_gpu() {
  WebGpuOptions options = as_it_is();
  options.default_limits = true;
  options.use_f16 = options.use_subgroups = false;
  options.target = Target::webgpu_default();
  return options;
}

// The kernels that a GPU gets, with all that the driver has.
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

WebGpuOptions with_one_kernel_a_node() {
  WebGpuOptions options = as_it_is();
  options.target = Target::webgpu_default();
  options.target->software = true;
  options.target->fuse = options.target->plan = false;
  return options;
}

// So small that tensors are bound in parts, dispatches take two dimensions, and operands share bindings.
WebGpuOptions with_tiny_limits() {
  WebGpuOptions options = as_a_plain_gpu();
  options.target->max_bindings = 6;
  options.target->max_binding_bytes = 256;
  options.target->max_workgroups = 3;
  return options;
}

// One device for all tests of a process: pipelines are shared.
const Device& device_with(WebGpuOptions (*options)()) {
  static std::map<WebGpuOptions (*)(), Device> devices;
  const auto found = devices.find(options);
  return found != devices.end() ? found->second : devices.emplace(options, Device::webgpu(options())).first->second;
}

class WebGpuOp : public ::testing::TestWithParam<Op> {
 protected:
  static void check(WebGpuOptions (*options)(), const char* what) {
    const auto& cases = cases_of(GetParam());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(describe(GetParam(), i, cases[i]));
      const Sample sample = sample_of(GetParam(), cases[i]);
      expect_reference(sample, outputs_on(device_with(options), sample), what);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, WebGpuOp, ::testing::ValuesIn(computed_ops()),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

TEST_P(WebGpuOp, EqualsTheReference) { check(as_it_is, "as it is"); }
TEST_P(WebGpuOp, EqualsTheReferenceAsAPlainGpu) { check(as_a_plain_gpu, "as a plain GPU"); }
TEST_P(WebGpuOp, EqualsTheReferenceAsARichGpu) { check(as_a_rich_gpu, "as a rich GPU"); }
TEST_P(WebGpuOp, EqualsTheReferenceUnfused) { check(with_one_kernel_a_node, "unfused"); }
TEST_P(WebGpuOp, EqualsTheReferenceWithTinyLimits) { check(with_tiny_limits, "with tiny limits"); }

}  // namespace
}  // namespace jerboa::test
