#include <algorithm>
#include <ctime>
#include <functional>
#include <gtest/gtest.h>

#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "deep_graphs.h"

// Compile time grows linearly with the size of the graph. How long the large graphs take, 0.3 to 0.9 s on an idle
// machine, is measured by hand: a bound in seconds would depend on the machine and on what else it does.
namespace jerboa {
namespace {

using Build = std::function<Graph(int)>;

// CPU time of this process, so that other load on the machine matters little.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_to_compile(const Build& build, int size, const Target& target) {
  const double start = processor_seconds();
  Program program = lower(build(size), target);
  if (target.max_bindings < Target::cpu().max_bindings) emit_wgsl(program, target);
  return processor_seconds() - start;
}

Target gpu() {
  Target target = Target::webgpu_default();
  target.pool_updates = true;
  return target;
}

// Four times the size: four times the time if it is linear, sixteen times if it is quadratic. The least of several runs
// counts, because other processes may have had the caches during one of them.
void expect_linear(const Build& build, int small, const Target& target) {
  constexpr int runs = 8;
  double before = 1e9, after = 1e9;
  for (int run = 0; run < runs && (run == 0 || after >= 9 * before + 0.05); ++run) {
    before = std::min(before, seconds_to_compile(build, small, target));
    after = std::min(after, seconds_to_compile(build, 4 * small, target));
  }
  EXPECT_LT(after, 9 * before + 0.05) << small << " took " << before << " s, " << 4 * small << " took " << after
                                      << " s";
}

TEST(CompileTime, OfAChainIsLinear) { expect_linear(test::chain_of_links, 500, Target::cpu()); }
TEST(CompileTime, OfAChainIsLinearForGpus) { expect_linear(test::chain_of_links, 500, gpu()); }
TEST(CompileTime, OfAnUnrolledLstmIsLinear) { expect_linear(test::unrolled_lstm, 128, Target::cpu()); }
TEST(CompileTime, OfAnUnrolledLstmIsLinearForGpus) { expect_linear(test::unrolled_lstm, 128, gpu()); }

Graph grid_of_slices(int blocks) {
  const int columns = 16, rows = blocks / columns;
  return trace([&] {
    const Tensor grid = param_input("grid", {rows, columns, 4});
    Tensor loss = scalar(0);
    for (int i = 0; i < blocks; ++i) {
      const Tensor row = slice(grid, 0, i / columns, i / columns + 1);
      loss = loss + sum(exp(slice(row, 1, i % columns, i % columns + 1)));
    }
    output("d_grid", append_grad(loss)[0].grad);
  });
}

TEST(CompileTime, OfAGridOfSlicesIsLinear) { expect_linear(grid_of_slices, 128, Target::cpu()); }
TEST(CompileTime, OfAGridOfSlicesIsLinearForGpus) { expect_linear(grid_of_slices, 128, gpu()); }

// A recurrence that reads its steps through views, two slices of each.
Graph recurrence_through_views(int steps) {
  constexpr int batch = 4, width = 8;
  return trace([&] {
    const Tensor x = param_input("x", {steps * batch, 3 * width});
    Tensor h = zeros({batch, width});
    for (int t = 0; t < steps; ++t) {
      const Tensor now = squeeze(slice(reshape(x, {steps, batch, 3 * width}), 0, t, t + 1), {0});
      h = tanh(h * slice(now, 1, 0, width) + slice(now, 1, 2 * width, 3 * width));
    }
    test::output_gradients(mean(h));
  });
}

TEST(CompileTime, OfARecurrenceThroughViewsIsLinear) { expect_linear(recurrence_through_views, 128, Target::cpu()); }
TEST(CompileTime, OfARecurrenceThroughViewsIsLinearForGpus) { expect_linear(recurrence_through_views, 128, gpu()); }

// Expressions of constants are inlined where they are used: sums of sums must not be computed twice at each level.
TEST(CompileTime, DoesNotGrowWithThePathsThroughAGraph) {
  const Build doubled = [](int levels) {
    return trace([&] {
      Tensor x = arange(8, DType::f32);
      for (int i = 0; i < levels; ++i) x = sin(x + x);
      output("y", x + tensor_input("b", {8}));
    });
  };
  for (const Target& target : {Target::cpu(), gpu()}) EXPECT_LT(seconds_to_compile(doubled, 200, target), 60);
}

// No kernel grows without limit: drivers would take forever to compile it.
TEST(CompileTime, KernelsStayBounded) {
  for (const Target& target : {Target::cpu(), gpu()})
    for (const KernelSpec& kernel : lower(test::chain_of_links(1000), target).cpu.kernels)
      EXPECT_LT(kernel.body.size(), 2500u);
}

}  // namespace
}  // namespace jerboa
