#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>

#include "ops/cases/large.h"
#include "ops/sample.h"
#include "ops/sixteen_bits.h"
#include "support/packed_checks.h"
#include "support/product_prologues.h"
#include "support/random_graph.h"
#include "verify/compare.h"

// The CPU engine against the reference in f64, over the sample cases of every op: forward and gradient, fused and not,
// planned and not, with memory that holds garbage before a run, on several threads, and with a guard over each
// dispatch's memory.
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

CpuOptions guarded(bool fused, bool planned, int threads) {
  CpuOptions options = with(fused, planned, threads, 0);
  options.guard = true;
  return options;
}

TensorMap on_cpu(const Sample& sample, const CpuOptions& options) {
  return outputs_on(Device(make_cpu_backend(options)), sample);
}

void expect_reference_in_every_way(const Sample& sample, const Tolerance& tolerance = {1e-4, 2e-5, 1e-4}) {
  const TensorMap fused = on_cpu(sample, with(true, true, 1, 7e8f));
  expect_reference(sample, fused, "fused", tolerance);
  expect_same_bits(fused, on_cpu(sample, with(true, true, 1, -3e-9f)), "other garbage in memory");
  expect_same_bits(fused, on_cpu(sample, guarded(true, true, 3)), "three threads");
  expect_same_bits(fused, on_cpu(sample, guarded(true, false, 1)), "one buffer per tensor");
  expect_reference(sample, on_cpu(sample, guarded(false, true, 2)), "unfused", tolerance);
  CpuOptions limited = with(true, true, 2, 7e8f);
  limited.target = Target::webgpu_default();
  limited.target.max_bindings = 5;  // as many as a quantised product with minimums needs
  expect_reference(sample, on_cpu(sample, limited), "lowered for few bindings and separate arenas", tolerance);
}

class EngineOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, EngineOp, ::testing::ValuesIn(computed_ops()),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

TEST_P(EngineOp, EqualsTheReference) {
  const auto& cases = cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    expect_reference_in_every_way(sample_of(GetParam(), cases[i]));
  }
}

TEST_P(EngineOp, EqualsTheReferenceInLargeShapes) {
  const auto cases = large_cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    expect_reference_in_every_way(sample_of(GetParam(), cases[i]));
  }
}

TEST_P(EngineOp, EqualsTheReferenceInSixteenBits) {
  CpuOptions limited = with(true, true, 2, 7e8f);
  limited.target = Target::webgpu_default();
  limited.target.max_bindings = 5;  // as many as a quantised product with minimums needs
  const std::vector<std::pair<const char*, CpuOptions>> ways{{"fused", with(true, true, 1, 7e8f)},
                                                             {"unfused", guarded(false, true, 2)},
                                                             {"lowered for few bindings and separate arenas", limited}};
  const auto& cases = cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const DType floats : {DType::f16, DType::bf16})
      for (const Sample& sample : sixteen_bit_samples(GetParam(), cases[i], floats)) {
        const SixteenBits wanted(sample);
        for (const auto& [how, options] : ways)
          EXPECT_EQ(wanted.difference(on_cpu(sample, options)), std::nullopt)
              << how << " in " << name(floats) << ": " << describe(GetParam(), i, cases[i]);
      }
}

// The tolerances are tight: results that are off by a few units in the last place are noticed.
TEST(SixteenBitBounds, NoticeAWrongResult) {
  for (const DType floats : {DType::f16, DType::bf16})
    for (const Op op : {Op::exp, Op::matmul, Op::softmax, Op::layer_norm, Op::attention}) {
      const Sample sample = sixteen_bit_samples(op, cases_of(op).front(), floats).front();
      const SixteenBits wanted(sample);
      TensorMap outputs = on_cpu(sample, with(true, true, 1, 0));
      ASSERT_EQ(wanted.difference(outputs), std::nullopt);
      HostTensor& first = outputs.at("out0");
      const double unit = floats == DType::f16 ? 0x1p-10 : 0x1p-7;
      for (std::int64_t i = 0; i < first.size(); ++i) first.set_number(i, first.number(i) * (1 + 8 * unit));
      EXPECT_NE(wanted.difference(outputs), std::nullopt) << name(op) << " in " << name(floats);
    }
}

TEST(EngineProduct, ComputesItsOperandsAsItReadsThem) {
  for (const ProductCase& product : product_cases())
    for (const DType second : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(describe(product));
      expect_reference_in_every_way(product_of_prologues(product, second));
    }
}

TEST(EngineCaches, In8BitsHoldTheNearest) { expect_nearest_rows(Device::cpu(2)); }

class EngineRandomGraph : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, EngineRandomGraph, ::testing::Range(0u, 40u));

TEST_P(EngineRandomGraph, EqualsTheReference) {
  const Differentiated it = random_graph(GetParam(), 24);
  expect_reference_in_every_way(Sample{it.graph, it.inputs}, {1e-3, 1e-4, 1e-4});
}

}  // namespace
}  // namespace jerboa::test
