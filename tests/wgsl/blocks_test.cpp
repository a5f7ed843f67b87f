#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "verify/compare.h"
#include "wgsl/shared_device.h"

// Products in the form for software drivers against the reference in f64: operands in every layout, read one by one or
// in fours, by each thread or for its subgroup (of the size that the device has), at sizes that leave parts of blocks
// empty. Without an adapter the tests fail and say why.
namespace jerboa::test::blocks_test {
namespace {

Target target_of(bool shares) {
  Target target = Target::webgpu_default();
  target.software = true;
  if (shares) target.subgroup_size = 32;
  return target;
}

const Device& device(bool shares) {
  return shared_device(shares, [](bool key) { return WebGpuOptions{.target = target_of(key)}; });
}

struct Trial {
  std::string name;
  Shape a, b;
  MatmulAttrs attrs;
};

std::ostream& operator<<(std::ostream& stream, const Trial& trial) { return stream << trial.name; }

std::vector<Trial> trials() {
  return {{"plain", {20, 48}, {48, 36}, {}},
          {"weights", {16, 32}, {40, 32}, {false, true}},
          {"gradient_of_weights", {64, 12}, {64, 72}, {true, false}},
          {"both_transposed", {24, 20}, {44, 24}, {true, true}},
          {"odd", {13, 24}, {24, 37}, {}},
          {"odd_inner", {9, 27}, {27, 21}, {}},
          {"odd_weights", {11, 22}, {19, 22}, {false, true}},
          {"batch", {3, 10, 16}, {3, 16, 20}, {}},
          {"few_columns", {40, 16}, {16, 6}, {}}};
}

Sample sample_of(const Trial& trial) {
  Case one{{any(trial.a), any(trial.b)}, trial.attrs};
  Sample sample;
  sample.graph = trace([&] {
    const Instance instance = build(Op::matmul, one, sample.inputs, DType::f32);
    output("out", instance.outputs[0] * 2);  // in the epilogue
  });
  return sample;
}

class ProductsInBlocks : public ::testing::TestWithParam<Trial> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ProductsInBlocks, ::testing::ValuesIn(trials()),
                         [](const ::testing::TestParamInfo<Trial>& param) { return param.param.name; });

TEST_P(ProductsInBlocks, EqualTheReferenceAndThemselves) {
  const Sample sample = sample_of(GetParam());
  for (const bool shares : {false, true}) {
    SCOPED_TRACE(shares);
    const TensorMap computed = outputs_on(device(shares), sample);
    expect_reference(sample, computed, "in blocks");
    expect_same_bits(computed, outputs_on(device(shares), sample), "a second time");
  }
}

// Where the results of the threads of a subgroup fit a matrix, and its inner elements fit their number.
TEST(RowsOfBlocks, AreSharedInSubgroups) {
  const auto shares = [](const Trial& trial, int lanes) {
    Target target = target_of(true);
    target.subgroup_size = lanes;
    Program program = lower(sample_of(trial).graph, target);
    emit_wgsl(program, target);
    EXPECT_NE(print_gpu(program).find("matmul_blocks"), std::string::npos);
    return print_gpu(program).find("subgroupBroadcast(") != std::string::npos;
  };
  const Trial whole{"", {20, 48}, {48, 36}, {}};
  for (const int lanes : {4, 8, 16}) EXPECT_TRUE(shares(whole, lanes)) << lanes;
  for (const int lanes : {0, 1, 2, 12, 32}) EXPECT_FALSE(shares(whole, lanes)) << lanes;
  EXPECT_FALSE(shares({"", {20, 44}, {44, 36}, {}}, 8));  // inner elements are left over
  EXPECT_FALSE(shares({"", {20, 48}, {48, 12}, {}}, 8));  // most threads would have no column
}

}  // namespace
}  // namespace jerboa::test::blocks_test
