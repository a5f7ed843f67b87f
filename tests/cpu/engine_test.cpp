#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>

#include "ops/sample.h"

// The CPU engine against the reference in f64, over the sample cases of every op: forward and gradient, fused and not,
// planned and not, with memory that holds rubbish before a run, on several threads.
namespace jerboa::test {
namespace {

CpuOptions with(bool fused, bool planned, int threads, float sentinel) {
  CpuOptions options;
  options.threads = threads;
  options.target.fuse = fused;
  options.target.plan = planned;
  options.sentinel = sentinel;
  return options;
}

TensorMap on_cpu(const Sample& sample, const CpuOptions& options) {
  return outputs_on(Device(make_cpu_backend(options)), sample);
}

class EngineOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, EngineOp, ::testing::ValuesIn(computed_ops()),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

TEST_P(EngineOp, EqualsTheReference) {
  const auto& cases = cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    const Sample sample = sample_of(GetParam(), cases[i]);
    const TensorMap fused = on_cpu(sample, with(true, true, 1, 7e8f));
    expect_reference(sample, fused, "fused");
    expect_same_bits(fused, on_cpu(sample, with(true, true, 1, -3e-9f)), "other rubbish in memory");
    expect_same_bits(fused, on_cpu(sample, with(true, true, 3, 7e8f)), "three threads");
    expect_same_bits(fused, on_cpu(sample, with(true, false, 1, 7e8f)), "a buffer a tensor");
    expect_reference(sample, on_cpu(sample, with(false, true, 2, 7e8f)), "unfused");
    CpuOptions limited = with(true, true, 2, 7e8f);
    limited.target = Target::webgpu_default();
    limited.target.max_bindings = 4;
    expect_reference(sample, on_cpu(sample, limited), "lowered for few bindings and arenas apart");
  }
}

}  // namespace
}  // namespace jerboa::test
