#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "verify/compare.h"
#include "wgsl/shared_device.h"

// Loops, rows and reductions that read and write four elements at a time, in the form for GPUs, against the reference
// in f64: where memory is adjacent, where it is not, and where sizes or offsets do not allow it. Without an adapter the
// tests fail and say why.
namespace jerboa::test::fours_test {
namespace {

Target gpu_target() {
  Target target = Target::webgpu_default();
  target.f16 = true;
  return target;
}

const Device& gpu() {
  return shared_device(0, [](int) { return WebGpuOptions{.target = gpu_target()}; });
}

Tensor given(const char* name, Shape shape, DType dtype = DType::f32) {
  return param_input(name, std::move(shape), {.init = Init::uniform(2), .dtype = dtype});
}

// Whether any shader of the graph handles four elements at a time.
bool uses_fours(const Graph& graph) {
  Program program = lower(graph, gpu_target());
  emit_wgsl(program, gpu_target());
  return std::any_of(program.gpu.shaders.begin(), program.gpu.shaders.end(),
                     [](const ShaderSource& shader) { return shader.name.ends_with("fours"); });
}

void expect_reference(const Graph& graph, bool fours = true) {
  EXPECT_EQ(uses_fours(graph), fours);
  Session computed(gpu(), {.seed = 3}), wanted(Device::reference(), {.seed = 3});
  computed.add_entry("run", graph);
  wanted.add_entry("run", graph);
  const Result results = computed.run("run", {}), references = wanted.run("run", {});
  for (const NamedTensor& output : graph.outputs) {
    const HostTensor ours = results.get(output.name), theirs = references.get(output.name);
    ASSERT_EQ(ours.shape(), theirs.shape());
    std::vector<double> a, b;
    for (std::int64_t i = 0; i < ours.size(); ++i) {
      a.push_back(ours.number(i));
      b.push_back(theirs.number(i));
    }
    const bool half = ours.dtype() == DType::f16;
    const auto problem = difference(a, b, half ? Tolerance{2e-3, 1e-3, 1e-3} : Tolerance{1e-4, 2e-5, 1e-4});
    EXPECT_FALSE(problem) << output.name << ": " << *problem;
  }
}

TEST(Fours, LoopsOverAdjacentElements) {
  expect_reference(trace([] {
    const Tensor x = given("x", {64, 520}), half = given("half", {64, 520}, DType::f16);
    const Tensor row = given("row", {520}), column = given("column", {64, 1});
    output("wide", x * row + column * cast(half, DType::f32));
    output("narrow", cast(x + row, DType::f16) * half);
    output("chosen", where(x > 0, x, row));
  }));
}

TEST(Fours, LoopsOverTransposedAndShiftedElements) {
  expect_reference(trace([] {
    const Tensor x = given("x", {520, 64}), y = given("y", {64, 530});
    output("out", transpose(x, {1, 0}) + slice(y, 1, 3, 523));
  }));
}

TEST(Fours, LoopsThatJoinAndPad) {
  expect_reference(trace([] {
    const Tensor a = given("a", {64, 128}, DType::f16), b = given("b", {64, 256}, DType::f16),
                 c = given("c", {64, 136}, DType::f16);
    output("between_fours", concat({a, b, c}, 1));
    const Tensor d = given("d", {64, 126}), e = given("e", {64, 394});
    output("across_fours", concat({d, e}, 1) * 2);
    output("padded", pad(given("f", {60, 516}), {2, 4}, {2, 0}, 1.5));
    output("padded_by_three", pad(given("g", {60, 517}), {2, 3}, {2, 0}, 1.5));
  }));
}

TEST(Fours, LoopsThatLookUp) {
  expect_reference(trace([] {
    const Tensor table = given("table", {50, 128});
    const Tensor ids = cast(floor(given("ids", {300}) * 12 + 25), DType::i32);
    output("out", embedding(table, ids) + given("row", {128}));
  }));
}

TEST(Fours, AreNotUsedForOddSizes) {
  expect_reference(trace([] { output("out", given("x", {300, 131}) * given("row", {131})); }), false);
}

TEST(Fours, Rows) {
  expect_reference(trace([] {
    const Tensor x = given("x", {2800, 384}), half = given("half", {2800, 384}, DType::f16);
    const Tensor weight = given("weight", {384}), bias = given("bias", {384});
    output("norm", layer_norm(x + cast(half, DType::f32), weight, bias));
    output("narrow", cast(softmax(x * 3) * 64, DType::f16));
    output("largest", argmax(x, 1));
    output("maximum", max(half, {1}));
  }));
}

TEST(Fours, RowsOfALossAndItsGradient) {
  expect_reference(trace([] {
    const Tensor logits = given("logits", {1050, 1000}, DType::f16);
    const Tensor targets = cast(floor(given("targets", {1050}) * 240 + 480), DType::i32);
    const Tensor loss = 16384 * mean(cross_entropy(cast(logits, DType::f32), targets));
    output("loss", loss);
    output("slope", grad(loss, {logits})[0]);
  }));
}

TEST(Fours, RowsOverSeveralAxes) {
  expect_reference(trace([] {
    const Tensor x = given("x", {350, 12, 8, 32});
    output("sums", sum(transpose(x, {0, 2, 1, 3}) * 2, {2, 3}));
  }));
}

TEST(Fours, ColumnsInOnePassAndInChunks) {
  expect_reference(trace([] {
    const Tensor few = given("few", {2000, 528}), many = given("many", {27000, 40}),
                 half = given("half", {8000, 132}, DType::f16);
    output("few", sum(few, {0}) * 2);
    output("many", sum(many * many, {0}) + given("row", {40}));
    output("half", sum(half, {0}));
    output("largest", max(many, {0}));
    output("smallest", min(cast(half, DType::f32), {0}));
    output("inner", sum(given("cube", {8, 11000, 12}), {1}));
  }));
}

TEST(Fours, ColumnsOfOddSizesAndWholeTensors) {
  expect_reference(trace([] {
                     output("odd", sum(given("x", {3000, 33}), {0}));
                     output("all", sum(given("y", {3000, 33})));
                     output("finite", cast(all_finite(given("z", {90000, 1})), DType::f32));
                   }),
                   false);
}

}  // namespace
}  // namespace jerboa::test::fours_test
