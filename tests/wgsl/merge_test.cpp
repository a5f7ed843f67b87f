#include <gtest/gtest.h>

#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>
#include <jerboa/lower/lower.h>
#include <jerboa/transform/grad.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "wgsl/emulated_matrices.h"
#include "wgsl/idle_arenas.h"
#include "wgsl/shader_text.h"

// Independent steps of training that share a dispatch, and workspace that shares memory with activations.
namespace jerboa::test::merge_test {
namespace {

struct Perceptron {
  nn::Linear hidden{64, 64}, out{64, 32};
  JERBOA_FIELDS(hidden, out)
  Tensor operator()(Tensor x) const { return out(relu(hidden(x))); }
};

// The kernels for GPUs, whatever the driver.
Target gpu_target() {
  Target target = Target::webgpu_default();
  target.max_bindings = 16;
  target.resident_workgroups = 264;
  return target;
}

// The gradient of a layer's weights, that of its bias and that of its input share a dispatch, with products in teams
// and sums in one shader, each in workgroup memory of its own.
TEST(MergedSteps, TrainLikeTheCpu) {
  HostTensor images(DType::f32, {64, 64}), labels(DType::i32, {64});
  SplitMix random(1);
  for (float& value : images.f32()) value = static_cast<float>(random.uniform() - 0.5);
  for (std::int32_t& label : labels.as<std::int32_t>()) label = static_cast<std::int32_t>(random.below(32));
  const Batch batch{{"images", images}, {"labels", labels}};
  const auto train = [&](const Device& device) {
    Module module =
        compile_module(Perceptron{}, classification_loss, specs_of(batch), Adam{.lr = 1e-2}, {.device = device});
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(module.step(batch).loss());
    return std::pair(losses, module.kernel_count());
  };
  WebGpuOptions options{.target = gpu_target(), .sentinel = 7e8F};
  const auto [computed, dispatches] = train(Device::webgpu(options));
  const auto wanted = train(Device::cpu()).first;
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(computed[i], wanted[i], 1e-4 * wanted[i]) << i;
  // Hidden, out, loss, {mean, its gradients}, {relu's gradient, those of out}, those of hidden, updates.
  EXPECT_LE(dispatches, 8);
}

struct WidePerceptron {
  nn::Linear hidden{256, 1024}, out{1024, 256};
  JERBOA_FIELDS(hidden, out)
  Tensor operator()(Tensor x) const { return out(relu(hidden(x))); }
};

// Products in eight teams of 256 threads: rows and sums have as many, and loops of 128 two workgroups in one.
TEST(MergedSteps, WithLargeProductsTrainLikeTheCpu) {
  HostTensor images(DType::f32, {256, 256}), labels(DType::i32, {256});
  SplitMix random(1);
  for (float& value : images.f32()) value = static_cast<float>(random.uniform() - 0.5);
  for (std::int32_t& label : labels.as<std::int32_t>()) label = static_cast<std::int32_t>(random.below(256));
  const Batch batch{{"images", images}, {"labels", labels}};
  const auto module_on = [&](const Device& device) {
    return compile_module(WidePerceptron{}, classification_loss, specs_of(batch), Adam{.lr = 1e-2}, {.device = device});
  };
  Module ours = module_on(Device::webgpu({.target = gpu_target(), .sentinel = 7e8F})),
         wanted = module_on(Device::cpu());
  for (int i = 0; i < 3; ++i) {
    const double loss = wanted.step(batch).loss();
    EXPECT_NEAR(ours.step(batch).loss(), loss, 1e-4 * loss) << i;
  }
  Program program = lower(ours.ir(), gpu_target());
  emit_wgsl(program, gpu_target());
  int rows = 0, split_parts = 0;
  for (const ShaderSource& shader : program.gpu.shaders) {
    rows += shader.name == "rows" && shader.threads == 256 ? 1 : 0;
    split_parts += shader.threads == 256 ? count_of(shader.source, ", lane % 128u); }") : 0;
  }
  EXPECT_GT(rows, 0);
  EXPECT_GT(split_parts, 0);
}

// Next to a product in eight teams, sums have as many threads, but add the same elements in the same order.
TEST(MergedSteps, AddColumnsAsTheyDoAlone) {
  const Device device = Device::webgpu({.target = gpu_target()});
  for (const auto& [rows, columns] :
       {std::pair(1024, 256), std::pair(300, 40), std::pair(100, 6), std::pair(2500, 68)}) {
    const auto run = [&, rows = rows, columns = columns](bool beside_product) {
      const Graph graph = trace([&] {
        output("sums", sum(tensor_input("x", {rows, columns}), {0}));
        if (beside_product)
          output("y", matmul(tensor_input("a", {1024, 1024}), tensor_input("w", {256, 1024}), {.transpose_b = true}));
      });
      Program program = lower(graph, gpu_target());
      emit_wgsl(program, gpu_target());
      EXPECT_TRUE(!beside_product || program.gpu.shaders.front().threads == 256);
      TensorMap inputs;
      SplitMix random(1);
      for (const TensorInfo& tensor : graph.tensors) {
        if (tensor.storage != Storage::input) continue;
        HostTensor values(DType::f32, evaluate(tensor.type.shape, {}));
        for (float& value : values.f32()) value = static_cast<float>(random.uniform() - 0.5);
        inputs.emplace(tensor.name, std::move(values));
      }
      Session session(device);
      session.add_entry("run", graph);
      return session.run("run", inputs).get("sums");
    };
    const HostTensor alone = run(false), beside = run(true);
    for (std::int64_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone.number(i), beside.number(i)) << rows << " " << i;
  }
}

// How far attention goes is uniform only while nothing may write the positions, which a recurrent layer that fetches
// ahead reads too.
TEST(MergedSteps, ReadPositionsThatSayHowFarLoopsGo) {
  const Graph graph = trace([] {
    const Tensor positions = tensor_input("positions", {1, 1}, DType::i32),
                 lengths = tensor_input("lengths", {1}, DType::i32);
    output("a",
           attention(tensor_input("q", {1, 4, 1, 64}), state_input("k", {1, 2, 512, 64}),
                     state_input("v", {1, 2, 512, 64}), {.causal = true, .lengths = lengths, .positions = positions}));
    const Tensor state = state_input("state", {1, 4, 32, 32}), x = tensor_input("x", {1, 1, 4, 32});
    RecurrentOptions options;
    options.state = state;
    options.positions = positions;
    const Recurrent next = linear_attention(x, x, x, tensor_input("d", {1, 1, 4}), {}, options);
    update(state, next.state);
    output("y", next.y);
  });
  Target target = gpu_target();
  target.workgroup_bytes = 32768;
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  EXPECT_TRUE(std::any_of(program.gpu.steps.begin(), program.gpu.steps.end(), [](const GpuStep& step) {
    return step.label.find("attention_") != std::string::npos && step.label.find(" + ") != std::string::npos;
  })) << print_gpu(program);
  Session session(Device::webgpu({.target = target}));
  session.add_entry("run", graph);  // where shaders are compiled
}

// Threads that wait for none of the others can be those of several workgroups.
TEST(MergedSteps, HaveSeveralWorkgroupsOfIndependentThreadsInOne) {
  wgsl::ShaderText loop, sum;
  loop.body = "  out[group * 64u + lane] = 1.0;\n";
  sum.workgroup_memory = {{"parts", "f32", 256, 1024}};
  sum.body = "  parts[lane] = 1.0; workgroupBarrier();\n";
  EXPECT_TRUE(wgsl::has_independent_threads(loop));
  EXPECT_FALSE(wgsl::has_independent_threads(sum));
  wgsl::ShaderPart of_sum{&sum, {}, 0, "3u"}, of_loop{&loop, {}, 0, "2u"};
  of_loop.split = 4;
  of_loop.threads = 64;
  of_loop.original_workgroups = "7u";
  const std::string text = wgsl::assemble(wgsl::merge({of_sum, of_loop}), 256);
  EXPECT_NE(
      text.find("if ((group - 3u) * 4u + lane / 64u < 7u) { part_1((group - 3u) * 4u + lane / 64u, lane % 64u); }"),
      std::string::npos)
      << text;
}

TEST(ShaderTexts, KnowWhetherThreadsWaitInLoops) {
  wgsl::ShaderText text;
  text.functions = "fn take(value: f32) -> f32 {\n  workgroupBarrier();\n  return value;\n}\n";
  const auto waits = [&](const char* body) {
    text.body = body;
    return wgsl::waits_in_loops(text);
  };
  EXPECT_TRUE(waits("  for (var i = 0u; i < 4u; i++) {\n    if (true) { workgroupBarrier(); }\n  }\n"));
  EXPECT_TRUE(waits("  for (var i = 0u; i < 4u; i++) {\n    let x = take(1.0);\n  }\n"));
  EXPECT_FALSE(waits("  for (var i = 0u; i < 4u; i++) { taken += 1.0; }\n  workgroupBarrier();\n"));
  EXPECT_FALSE(waits("  let x = take(1.0);\n  for (var i = 0u; i < 4u; i++) {}\n  let y = take(x);\n"));
  text.functions += "fn twice(value: f32) -> f32 { return take(take(value)); }\n";
  EXPECT_TRUE(waits("  for (var i = 0u; i < 4u; i++) { let x = twice(1.0); }\n"));
}

// As a phase, one part may read in fours what another reads element by element.
TEST(MergedSteps, StageOperandsThatAnyOfThemReadsFromWorkgroupMemory) {
  wgsl::ShaderText in_fours, alone;
  in_fours.buffers = {{"buffer_0", "passed", false, "read_at_0", "", 64}};
  in_fours.functions = "fn load_0(index: u32) -> u32 { return staged[staged_buffer_0 + (index >> 2u)][index & 3u]; }\n";
  alone.buffers = {{"buffer_0", "passed", false, "read_at_0", "", 0}};
  alone.functions = "fn load_0(index: u32) -> u32 { return passed_word(read_at_0 + index); }\n";
  const wgsl::ShaderPart first{&in_fours, {0}, 0, "1u"}, second{&alone, {0}, 0, "1u"};
  for (const auto& parts : {std::vector{first, second}, std::vector{second, first}}) {
    const wgsl::ShaderText merged = wgsl::merge(parts);
    EXPECT_EQ(merged.buffers[0].staged, 64);
    EXPECT_NE(merged.functions.find("staged[staged_bound_0 + "), std::string::npos);
    EXPECT_NE(merged.functions.find("read_at_bound_0 + index"), std::string::npos);
  }
}

// The operations of each shader, by its name.
std::map<std::string, std::int64_t> operations_of(const Graph& graph, const Target& target) {
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  std::map<std::string, std::int64_t> operations;
  for (const GpuStep& step : program.gpu.steps)
    if (step.shader >= 0)
      operations[program.gpu.shaders[static_cast<std::size_t>(step.shader)].name] += step.operations.value();
  return operations;
}

Graph attention_gradient(int time) {
  return trace([&] {
    const auto in = [&](const char* name) { return tensor_input(name, {2, 4, time, 64}, DType::f16); };
    const Tensor q = in("q"), k = in("k"), v = in("v");
    const std::vector<Tensor> gradients = vector_jacobian({attention(q, k, v)}, {in("dout")}, {q, k, v});
    for (std::size_t i = 0; i < gradients.size(); ++i) output(std::to_string(i), gradients[i]);
  });
}

TEST(Operations, AreThoseOfTheShadersThatMultiply) {
  Target target = gpu_target();
  const std::int64_t product = std::int64_t{2} * 8 * 512 * 512 * 64;
  std::map<std::string, std::int64_t> operations = operations_of(attention_gradient(512), target);
  EXPECT_EQ(operations["attention_row_terms"], 0);
  EXPECT_EQ(operations["several"], 5 * product) << "both gradients share a dispatch";
  target.f16 = target.f16_arithmetic = true;
  target.workgroup_bytes = 32768;
  target.subgroup_matrices = SubgroupMatrices::emulated;
  operations = operations_of(attention_gradient(512), target);
  EXPECT_EQ(operations["attention_row_terms"], 0);
  EXPECT_EQ(operations["attention_dq_matrices"], 2 * product);
  EXPECT_EQ(operations["attention_dkv_matrices"], 3 * product);
  operations = operations_of(
      trace([] {
        const Tensor w = tensor_input("w", {8, 256, 256});
        output("y", matmul_grouped(tensor_input("x", {512, 256}), w, tensor_input("offsets", {9}, DType::i32)));
      }),
      target);
  EXPECT_EQ(operations["grouped_zeros"], 0);
  EXPECT_EQ(operations["matmul_grouped"], 2 * 512 * 256 * 256);
  operations =
      operations_of(trace([] {
                      const Tensor w = param_input("w", {256, 256}, {.trainable = false, .dtype = DType::i8});
                      const Tensor scales = param_input("scales", {256, 8}, {.trainable = false, .dtype = DType::f16});
                      output("y", matmul_quantised(tensor_input("x", {64, 256}), w, scales));
                    }),
                    target);
  EXPECT_EQ(operations["row_scales"], 0);
  EXPECT_EQ(operations["matmul_matrices"], 2 * 64 * 256 * 256);
}

// Each of the sizes of a recurrent layer's gradient.
TEST(Operations, OfARecurrenceAreItsShadersTogether) {
  const auto graph = [](bool with_gradient) {
    return trace([&] {
      const Tensor x = tensor_input("x", {2, 128, 4, 32}), decay = tensor_input("decay", {2, 128, 4});
      const Tensor y = linear_attention(x, x, x, decay).y;
      output("y", with_gradient ? vector_jacobian({y}, {tensor_input("dy", {2, 128, 4, 32})}, {x})[0] : y);
    });
  };
  const std::int64_t forward = std::int64_t{2} * 2 * (2 * 128 * 4 * 32) * 32;
  for (const bool with_gradient : {false, true}) {
    std::map<std::string, std::int64_t> operations = operations_of(graph(with_gradient), gpu_target());
    std::int64_t all = 0;
    for (const auto& [name, count] : operations) all += count;
    EXPECT_EQ(all, (with_gradient ? 3 : 1) * forward);
    EXPECT_EQ(operations["linear_attention_gates"], 0);
  }
}

// A workgroup runs one part, so that parts need no more than the largest of each array.
TEST(MergedSteps, ShareWorkgroupMemoryOfOneNameAndType) {
  const wgsl::ShaderText::WorkgroupArray small{"tile_a", "vec4f", 64, 1024}, large{"tile_a", "vec4f", 256, 4096},
      halves{"tile_a", "vec4<f16>", 64, 512};
  EXPECT_EQ(workgroup_bytes(wgsl::shared({small}, {large})), 4096);
  EXPECT_EQ(workgroup_bytes(wgsl::shared({large}, {small})), 4096);
  EXPECT_EQ(workgroup_bytes(wgsl::shared({large}, {halves, small})), 4096 + 512);
  wgsl::ShaderText first, second;
  first.workgroup_memory = {small};
  first.body = "  tile_a[lane] = vec4f();\n";
  second.workgroup_memory = {large, halves};
  second.workgroup_memory[1].name = "other";
  second.body = "  tile_a[lane + 64u] = vec4f(); other[lane] = vec4<f16>();\n";
  const std::string text = wgsl::assemble(wgsl::merge({{&first, {}, 0, "2u"}, {&second, {}, 0, "3u"}}), 64);
  for (const char* part : {"tile_avec4f: array<vec4f, 256>;", "othervec4f16: array<vec4<f16>, 64>;",
                           "tile_avec4f[lane] =", "tile_avec4f[lane + 64u] ="})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("array<vec4f, 64>"), std::string::npos) << text;
}

Buffer activation(int arena, std::int64_t bytes, int first, int last) {
  Buffer buffer;
  buffer.arena = arena;
  buffer.bytes = bytes;
  buffer.first = first;
  buffer.last = last;
  return buffer;
}

wgsl::FoldedPart part_of(int dispatch, std::vector<int> buffers) {
  wgsl::FoldedPart part;
  part.dispatch = dispatch;
  part.buffers = std::move(buffers);
  return part;
}

TEST(IdleArenas, AreFoundWhereNothingLivesOrIsBound) {
  Program program;
  program.arenas = {1 << 20, 1 << 16, 1 << 18, 1 << 10};
  program.buffers = {activation(0, 1000, 0, 3), activation(1, 1 << 16, 1, 2), activation(2, 1 << 18, 0, 0),
                     activation(2, 1 << 17, 3, 3), activation(3, 1 << 10, 0, 3)};
  // The second part reads what was planned to be dead by then, because it computes what another kernel did.
  const std::vector<wgsl::FoldedPart> parts{part_of(0, {0, 2}), part_of(1, {1, 0}), part_of(2, {1, 2}),
                                            part_of(3, {3, 4})};
  const wgsl::IdleArenas idle(program, parts, 256);
  const auto find = [&](std::size_t part, std::int64_t bytes, const std::set<int>& except = {}) {
    const auto place = idle.find(part, bytes, except);
    return place ? std::pair(place->arena, place->offset) : std::pair(-1, std::int64_t{0});
  };
  EXPECT_EQ(find(0, 5000), std::pair(1, std::int64_t{0})) << "the smallest that is empty";
  EXPECT_EQ(find(0, 1 << 17), std::pair(-1, std::int64_t{0})) << "the part binds the others";
  EXPECT_EQ(find(2, 5000), std::pair(0, std::int64_t{1024})) << "behind what another part still needs";
  EXPECT_EQ(find(3, 5000), std::pair(1, std::int64_t{0}));
  EXPECT_EQ(find(3, 5000, {1}), std::pair(0, std::int64_t{1024}));
  EXPECT_EQ(find(3, 1 << 20), std::pair(-1, std::int64_t{0}));
}

}  // namespace
}  // namespace jerboa::test::merge_test
