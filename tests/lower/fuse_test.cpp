#include "lower/fuse.h"

#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/lower/lower.h>

#include "graphs.h"
#include "support/expect_error.h"

// Which nodes share a kernel.
namespace jerboa {
namespace {

Program lowered(const std::function<void()>& body) { return lower(trace(body), Target::webgpu_default()); }

int kernels(const Program& program) {
  int count = 0;
  for (const Dispatch& dispatch : program.cpu.dispatches) count += static_cast<int>(dispatch.parts.size());
  return count;
}
int kernels(const std::function<void()>& body) { return kernels(lowered(body)); }

Tensor x() { return tensor_input("x", {8, 16, 32}); }
Tensor weight() { return tensor_input("weight", {32, 32}); }

TEST(Fusion, AChainOfElementWiseOpsIsOneKernel) {
  EXPECT_EQ(kernels([] {
              const Tensor in = x();
              output("y", exp(in * 2 + 1) / (1 + sigmoid(in)));
            }),
            1);
}

TEST(Fusion, BiasActivationAndResidualFollowAProduct) {
  EXPECT_EQ(kernels([] {
              const Tensor in = x();
              output("y", gelu(matmul(in, weight()) + tensor_input("bias", {32})) + in);
            }),
            1);
}

TEST(Fusion, WhoReadsAHalfPrecisionTensorWidensIt) {
  const Program program = lowered([] {
    const Tensor product = matmul(cast(x(), DType::f16), cast(weight(), DType::f16));
    const Tensor wide = cast(product, DType::f32);
    output("norm", softmax(wide));
    output("sums", sum(wide * 2, {0, 1}));
  });
  const bool widened = std::any_of(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) {
    return buffer.where == Buffer::Where::arena && buffer.name.starts_with("cast") && buffer.dtype == DType::f32;
  });
  EXPECT_FALSE(widened) << print(program);
}

TEST(Fusion, ConvertsSmallParametersWhereTheyAreUsed) {
  EXPECT_EQ(
      kernels([] {
        const Tensor bias = cast(param_input("bias", {32}), DType::f16);
        output("y", matmul(tensor_input("a", {16, 32}, DType::f16), tensor_input("b", {32, 32}, DType::f16)) + bias);
      }),
      1);
}

TEST(Fusion, ComputesWithSmallParametersWhereTheyAreUsed) {
  EXPECT_EQ(kernels([] { output("y", rms_norm(x(), param_input("weight", {32}) + 1, 1e-5)); }), 1);
  const auto decayed = [](std::int64_t tokens) {
    return kernels([&] {
      const Tensor rates = exp(param_input("rates", {32}));
      output("y", tensor_input("steps", {1, tokens, 32}) * reshape(rates, {1, 1, 32}));
    });
  };
  EXPECT_EQ(decayed(1), 1);
  EXPECT_EQ(decayed(3), 1);
  EXPECT_EQ(decayed(256), 2) << "256 times as many exponentials";
}

// Each of many rows would compute the whole chain again.
TEST(Fusion, ComputesLongChainsOnAVectorOnce) {
  const auto instructions = [](int length) {
    const Program program = lowered([&] {
      Tensor scale = param_input("scale", {32});
      for (int i = 0; i < length; ++i) scale = maximum(scale * 1.5 + 0.5, 0);
      output("y", tensor_input("x", {512, 32}) * scale);
    });
    std::size_t per_element = 0;
    for (const KernelSpec& kernel : program.cpu.kernels)
      if (element_count(kernel.domain).upper_bound() == 512 * 32) per_element = kernel.body.size();
    return per_element;
  };
  EXPECT_GT(instructions(1), instructions(0)) << "a short one takes no kernel of its own";
  EXPECT_LT(instructions(50), instructions(0) + 16);
}

// The first reshape alone would need a copy of the transposed tensor; both together restore the tensor.
TEST(Fusion, JoinsAReshapeOfAReshape) {
  const auto transposed = [] { return transpose(tensor_input("x", {4, 6, 2}), {0, 2, 1}); };
  const int alone = kernels([&] { output("y", exp(reshape(transposed(), {4, 12}))); });
  const int joined = kernels([&] { output("y", exp(reshape(reshape(transposed(), {4, 12}), {4, 2, 6}))); });
  EXPECT_LT(joined, alone);
}

TEST(Fusion, AProductComputesCheapOperandsAsItReadsThem) {
  EXPECT_EQ(kernels([] {
              output("y", matmul(relu(x()) * 0.5, cast(tensor_input("b", {32, 8}, DType::f16), DType::f32)));
            }),
            1);
  EXPECT_EQ(kernels([] {
              const Tensor a = relu(x());
              const Tensor b = weight();
              output("y", matmul(matmul(a, b) + 1, b) + matmul(a, b * 2));
            }),
            3);
  // Nodes that are expensive, or needed in memory as well, are computed once.
  EXPECT_EQ(kernels([] { output("y", matmul(gelu(x()), weight())); }), 2);
  EXPECT_EQ(kernels([] {
              const Tensor a = relu(x());
              output("a", a);
              output("y", matmul(a, weight()));
            }),
            2);
}

TEST(Fusion, SoftmaxAndNormsAreOneKernelEach) {
  EXPECT_EQ(kernels([] { output("y", softmax(x() * 0.5)); }), 1);
  EXPECT_EQ(kernels([] { output("y", layer_norm(x(), tensor_input("gain", {32}), tensor_input("shift", {32}))); }), 1);
  EXPECT_EQ(kernels([] { output("y", rms_norm(x(), tensor_input("gain", {32}))); }), 1);
}

// Not in the product before it, which would have to store them.
TEST(Fusion, ANormComputesTheSquaresItSums) {
  const Program program = lowered([] {
    const Tensor in = x();
    const Tensor stream = in + matmul(in, weight());
    output("stream", stream);
    output("y", rms_norm(stream, tensor_input("gain", {32})));
  });
  EXPECT_EQ(kernels(program), 2);
  for (const KernelSpec& kernel : program.cpu.kernels) EXPECT_EQ(kernel.stores.size(), 1u);
}

TEST(Fusion, OpsBeforeAReductionBecomeItsPrologue) {
  EXPECT_EQ(kernels([] { output("y", sum(exp(x()), {0, 1})); }), 1);
  EXPECT_EQ(kernels([] { output("y", sum(exp(x()))); }), 1);
}

TEST(Fusion, OpsAfterAReductionBecomeItsEpilogue) {
  EXPECT_EQ(kernels([] { output("y", sqrt(sum(exp(x()), {0, 1})) + tensor_input("shift", {32})); }), 1);
  EXPECT_EQ(kernels([] { output("y", mean(x(), {0, 1}, true) * 2); }), 1);
  EXPECT_EQ(kernels([] { output("y", rsqrt(mean(x()))); }), 1);
  // In another shape it is a separate kernel.
  EXPECT_EQ(kernels([] {
              const Tensor in = x();
              output("y", in - sum(in, {0, 1}));
            }),
            2);
}

TEST(Fusion, AnOptimizerWorksWhereGradientsAreMade) {
  const Graph step = training_graph(
      {{"x", {16, 32}, DType::f32}, {"y", {16, 8}, DType::f32}},
      [](const Inputs& in) {
        const Tensor error = matmul(in["x"], param_input("weight", {32, 8})) + param_input("bias", {8}) - in["y"];
        return mean(error * error);
      },
      Adam{.lr = 1e-3});
  const Program program = lower(step, Target::cpu());
  // The error; its mean; the weight's gradient and update; the bias's gradient and update; the step counter.
  EXPECT_EQ(kernels(program), 5) << print(program);
}

TEST(Fusion, AttentionHasNoMemoryForItsScores) {
  const std::int64_t length = 512;
  const Graph step = training_graph(
      {{"x", {1, 2, length, 8}, DType::f32}},
      [](const Inputs& in) {
        const Tensor q = in["x"] * param_input("gain", {8});
        return mean(attention(q, q, q, {.causal = true}));
      },
      Sgd{.lr = 0.1});
  const Program program = lower(step, Target::webgpu_default());
  for (const Buffer& buffer : program.buffers) EXPECT_LT(buffer.elements.upper_bound(), length * length) << buffer.name;
}

TEST(Fusion, RefusesPartsOfQuantisedWeights) {
  const auto product = [](bool part, bool turned) {
    lowered([&] {
      Tensor weight = tensor_input("weight", {64, 64}, DType::i8), scales = tensor_input("scales", {64, 2});
      if (part) weight = slice(weight, 0, 32, 64), scales = slice(scales, 0, 32, 64);
      if (turned) weight = transpose(weight, {1, 0});
      output("y", matmul_quantised(tensor_input("x", {4, 64}), weight, scales));
    });
  };
  product(false, false);
  test::expect_error<UsageError>([&] { product(true, false); }, "weight is a slice or another view of a tensor");
  test::expect_error<UsageError>([&] { product(false, true); }, "quantise that part separately");
}

TEST(Fusion, OffMeansAKernelForEachNode) {
  Target plain = Target::webgpu_default();
  plain.fuse = false;
  EXPECT_EQ(kernels(lower(trace([] {
                            const Tensor in = x();
                            output("y", exp(in * in) + in);
                          }),
                          plain)),
            3);
}

}  // namespace
}  // namespace jerboa
