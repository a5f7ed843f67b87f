#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/grad.h>

// Where the gradients of q, k and v from attention are parts of one gradient, attention writes them there directly.
// Training against PyTorch shows that they are correct.
namespace jerboa::test::concat_results_test {
namespace {

constexpr std::int64_t batch = 2, time = 8, heads = 2, size = 4, width = heads * size;

// The gradient of attention for the weight of the one product that q, k and v are slices of.
Graph attention_of_slices(bool with_dq) {
  return trace([&] {
    const Tensor weight = param_input("weight", {3 * width, width});
    const auto [q, k, v] = split<3>(matmul(tensor_input("x", {batch, time, width}), weight, {.transpose_b = true}));
    const Tensor y = attention(q, k, v, {.heads = static_cast<int>(heads), .causal = true});
    std::vector<Tensor> wrt{weight};
    if (with_dq) wrt.push_back(q);
    const std::vector<Tensor> gradients = grad(sum(y * y), wrt);
    output("d_weight", gradients[0]);
    if (with_dq) output("dq", gradients[1]);
  });
}

int number_of_gradient(const Program& program) {
  const auto found = std::find_if(program.cpu.kernels.begin(), program.cpu.kernels.end(), [](const KernelSpec& kernel) {
    return kernel.kind == KernelSpec::Kind::whole && kernel.op == Op::attention_grad;
  });
  return static_cast<int>(found - program.cpu.kernels.begin());
}

std::vector<TensorAccess> results_of(const Program& program) {
  return program.cpu.kernels.at(static_cast<std::size_t>(number_of_gradient(program))).results;
}

class ConcatResults : public ::testing::TestWithParam<Target> {};

TEST_P(ConcatResults, AreWrittenSideBySide) {
  const std::vector<TensorAccess> results = results_of(lower(attention_of_slices(false), GetParam()));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results.at(i).binding, results.at(0).binding);
    EXPECT_EQ(results.at(i).offset, Dim(static_cast<std::int64_t>(i) * width));
    EXPECT_EQ(results.at(i).strides, (std::vector<Dim>{time * 3 * width, size, 3 * width, 1}));
  }
}

TEST_P(ConcatResults, StayApartWhereOneIsReadElsewhere) {
  const std::vector<TensorAccess> results = results_of(lower(attention_of_slices(true), GetParam()));
  EXPECT_NE(results.at(0).binding, results.at(1).binding);
}

// The verifier tells results in different columns from results that overlap.
TEST_P(ConcatResults, MustNotOverlap) {
  const Program program = lower(attention_of_slices(false), GetParam());
  for (const std::int64_t offset : {0, 1, 3}) {
    Program broken = program;
    broken.cpu.kernels.at(static_cast<std::size_t>(number_of_gradient(program))).results.at(1).offset = Dim(offset);
    EXPECT_THROW(verify(broken, GetParam()), GraphError) << offset;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ConcatResults, ::testing::Values(Target::cpu(), Target::webgpu_default()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace jerboa::test::concat_results_test
