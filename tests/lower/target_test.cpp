#include "lower/target.h"

#include <gtest/gtest.h>
#include <random>

#include <jerboa/backend/cpu.h>
#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>

#include "graphs.h"
#include "support/expect_error.h"

// Programs keep the limits of their target, however small, and compute the same under all of them.
namespace jerboa {
namespace {

Target small_target(int bindings, std::int64_t binding_bytes) {
  Target target = Target::webgpu_default();
  target.name = "small";
  target.max_bindings = bindings;
  target.max_binding_bytes = binding_bytes;
  return target;
}

int bindings_of_largest_kernel(const Program& program, const Target& target) {
  int most = 0;
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) {
      if (program.cpu.kernels[static_cast<std::size_t>(part.kernel)].kind == KernelSpec::Kind::whole) continue;
      int count = 0;
      for (const int buffer : part.buffers)
        count += detail::binding_count(program.buffers[static_cast<std::size_t>(buffer)].bytes, target);
      most = std::max(most, count);
    }
  return most;
}

TEST(BindingCount, IsOneForEachSegment) {
  Target target;
  target.max_binding_bytes = 100;
  EXPECT_EQ(detail::binding_count(0, target), 1);
  EXPECT_EQ(detail::binding_count(100, target), 1);
  EXPECT_EQ(detail::binding_count(101, target), 2);
  EXPECT_EQ(detail::binding_count(1000, target), 10);
}

// lower() verifies its result, so most of the test is that it returns.
TEST(Limits, HoldForTrainingSteps) {
  for (const auto& [name, graph] : test::training_steps())
    for (const Target& target :
         {Target::cpu(), Target::webgpu_default(), small_target(4, 128 << 20), small_target(5, 128 << 20),
          small_target(6, 128 << 20), small_target(8, 4 << 20), small_target(8, 3 << 20)}) {
      SCOPED_TRACE(name + " with " + std::to_string(target.max_bindings) + " bindings of " +
                   std::to_string(target.max_binding_bytes));
      EXPECT_LE(bindings_of_largest_kernel(lower(graph, target), target), target.max_bindings);
    }
}

TEST(Limits, CountSegmentsOfSmallBindings) {
  const Target target = small_target(8, 4096);
  const auto step = [](int width) {
    return test::gpt_step({.vocab = 64, .width = width, .layers = 2, .heads = 2, .context = 16}, 2, 10);
  };
  EXPECT_LE(bindings_of_largest_kernel(lower(step(20), target), target), 8);
  // Three tensors of three segments each are too many bindings for a product, which cannot be split.
  test::expect_error<UsageError>([&] { lower(step(28), target); }, "allows 8 of them in a kernel");
}

// The error is meant for the user: it comes before any from the verifier.
TEST(Limits, NameTensorsThatNoKernelCanBind) {
  const Target target = small_target(8, 4096);
  test::expect_error<UsageError>(
      [&] {
        lower(trace([] { output("loss", sum(param_input("table", {128, 80}))); }), target);
      },
      " takes 40960 bytes, too many for the device small: it binds a tensor in parts of at most 4096 bytes and allows "
      "8 "
      "of them in a kernel, but the one that computes sum_1 needs 11; make it smaller (several tensors instead of one, "
      "a smaller type or batch), or use a device with larger bindings");
  // A computed tensor, and one that an op reads as a whole.
  const auto scores = [](std::int64_t n) {
    const Tensor x = tensor_input("x", {n, 1}, DType::f16);
    return matmul(x, x, {.transpose_b = true});
  };
  test::expect_error<UsageError>([&] { lower(trace([&] { output("y", softmax(scores(160))); }), target); },
                                 "matmul_1 (f16[160, 160], target_test.cpp:");
  test::expect_error<UsageError>([&] { lower(trace([&] { output("y", argsort(scores(100))); }), target); },
                                 "argsort_2 (i32[100, 100], target_test.cpp:");
  // The same with room for it.
  lower(trace([&] { output("y", argsort(scores(60))); }), target);
  lower(trace([] { output("loss", sum(param_input("table", {64, 80}))); }), target);
}

TEST(Limits, SplitWideConcatenations) {
  const Graph graph = trace([] {
    std::vector<Operand> parts;
    for (int i = 0; i < 20; ++i) parts.emplace_back(tensor_input("x" + std::to_string(i), {3, 1 + i % 4}) * 2);
    output("y", exp(concat(parts, 1)));
  });
  TensorMap inputs;
  for (int i = 0; i < 20; ++i) {
    HostTensor values(DType::f32, {3, 1 + i % 4});
    for (std::int64_t j = 0; j < values.size(); ++j) values.set_number(j, 0.1 * i - 0.01 * static_cast<double>(j));
    inputs.emplace("x" + std::to_string(i), values);
  }
  CpuOptions options;
  const HostTensor wanted = compile(graph, {.device = Device(make_cpu_backend(options))}).run(inputs).get("y");
  for (const int bindings : {3, 4, 8})
    for (const bool fuse : {true, false}) {
      options.target = small_target(bindings, 128 << 20);
      options.target.fuse = fuse;
      EXPECT_LE(bindings_of_largest_kernel(lower(graph, options.target), options.target), bindings);
      EXPECT_TRUE(compile(graph, {.device = Device(make_cpu_backend(options))}).run(inputs).get("y") == wanted);
    }
}

TEST(Limits, LeaveFusionAloneWhereTheySuffice) {
  const Graph& graph = test::training_steps()[0].second;
  const auto wide = lower(graph, Target::cpu()).cpu.dispatches.size(),
             narrow = lower(graph, Target::webgpu_default()).cpu.dispatches.size();
  EXPECT_LE(narrow, wide + wide / 4);
}

TensorMap random_inputs(const Graph& graph) {
  std::mt19937 random(3);
  TensorMap inputs;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::input) continue;
    HostTensor values(tensor.type.dtype, evaluate(tensor.type.shape, {}));
    for (std::int64_t i = 0; i < values.size(); ++i)
      values.set_number(i, tensor.type.dtype == DType::i32 ? static_cast<double>(random() % 10)
                                                           : static_cast<double>(random() % 1000) / 1000 - 0.5);
    inputs.emplace(tensor.name, values);
  }
  return inputs;
}

// Losses of some steps and the parameters after them.
std::pair<std::vector<double>, TensorMap> train(const Graph& graph, const Target& target) {
  CpuOptions options;
  options.target = target;
  options.target.pool_updates = false;  // only for GPUs
  options.threads = 2;
  options.sentinel = 3e8F;
  Module module = compile(graph, {.device = Device(make_cpu_backend(options)), .seed = 7});
  std::vector<double> losses;
  const TensorMap inputs = random_inputs(graph);
  for (int step = 0; step < 3; ++step) losses.push_back(module.step(inputs).loss());
  return {losses, module.session().download_params()};
}

TEST(Limits, DoNotChangeResults) {
  for (const auto& [name, graph] : test::training_steps()) {
    if (name == "gpt") continue;  // the tiny one does
    const auto [wanted_losses, wanted_params] = train(graph, Target::cpu());
    for (const Target& target : {Target::webgpu_default(), small_target(4, 128 << 20)}) {
      SCOPED_TRACE(name + " with " + std::to_string(target.max_bindings) + " bindings");
      const auto [losses, params] = train(graph, target);
      for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted_losses[i], 1e-4);
      for (const auto& [param, values] : wanted_params)
        for (std::int64_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(params.at(param).number(i), values.number(i), 2e-3) << param;
    }
  }
}

}  // namespace
}  // namespace jerboa
