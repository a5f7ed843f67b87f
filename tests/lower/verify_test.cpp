#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>

#include "support/expect_error.h"

// The verifier refuses programs that are broken on purpose, one rule at a time, and names the buffers.
namespace jerboa {
namespace {

class BrokenProgram : public ::testing::TestWithParam<Target> {
 protected:
  Target target = GetParam();
  Program program = lower(trace([] {
                            const Tensor x = tensor_input("x", {8, 16});
                            const Tensor a = matmul(x, x, {.transpose_b = true}), b = softmax(a), c = matmul(b, x);
                            output("y", sum(c * c, {0}));
                            output("z", mean(x, {1}));
                          }),
                          target);

  void expect_refusal(const std::string& text) const {
    test::expect_error<GraphError>([&] { verify(program, target); }, text);
  }
  Buffer& buffer_of(const std::string& name) {
    return *std::find_if(program.buffers.begin(), program.buffers.end(),
                         [&](const Buffer& buffer) { return buffer.name == name; });
  }
  std::vector<Buffer*> activations() {
    std::vector<Buffer*> found;
    for (Buffer& buffer : program.buffers)
      if (buffer.where == Buffer::Where::arena) found.push_back(&buffer);
    return found;
  }
  // Puts every activation in separate memory for the whole run, so that the plan is valid.
  void spread_out() {
    target.separate_arenas = false;
    std::int64_t end = 0;
    for (Buffer* buffer : activations()) {
      buffer->arena = 0;
      buffer->offset = end;
      buffer->first = 0;
      buffer->last = static_cast<int>(program.cpu.dispatches.size());
      end += (buffer->bytes + 255) / 256 * 256;
    }
    program.arenas = {end};
  }
  Dispatch::Part& first_part() { return program.cpu.dispatches[0].parts[0]; }
};

INSTANTIATE_TEST_SUITE_P(Targets, BrokenProgram, ::testing::Values(Target::cpu(), Target::webgpu_default()),
                         [](const auto& param) { return param.param.name; });

TEST_P(BrokenProgram, IsFineBefore) { verify(program, target); }

TEST_P(BrokenProgram, SharesMemoryInUse) {
  for (Buffer* buffer : activations()) {
    buffer->offset = 0;
    buffer->arena = 0;
    buffer->bytes = std::min(buffer->bytes, program.arenas[0]);
  }
  expect_refusal("share memory while both are in use");
}

TEST_P(BrokenProgram, ReadsBeforeItWrites) {
  spread_out();
  std::reverse(program.cpu.dispatches.begin(), program.cpu.dispatches.end());
  expect_refusal("before it is written");
}

TEST_P(BrokenProgram, LeavesItsArena) {
  program.arenas[0] = 0;
  expect_refusal("outside its arena");
}

TEST_P(BrokenProgram, IsMisaligned) {
  program.arenas[0] += 4;
  for (Buffer* buffer : activations())
    if (buffer->arena == 0) buffer->offset += 4;
  expect_refusal("not aligned");
}

TEST_P(BrokenProgram, IsInUseLongerThanPlanned) {
  for (Buffer* buffer : activations()) buffer->last = buffer->first;
  expect_refusal("and in use from");
}

TEST_P(BrokenProgram, HasAnArenaOverTheLimit) {
  target.max_buffer_bytes = program.arenas[0];
  program.arenas[0] += 1;
  expect_refusal("no tensor that large");
}

TEST_P(BrokenProgram, BindsTooMuch) {
  target.max_bindings = 1;
  expect_refusal("needs 2 bindings where 1 are allowed: x, ");
}

TEST_P(BrokenProgram, BindsTooManySegments) {
  target.max_bindings = 8;
  target.max_binding_bytes = 64;
  expect_refusal("bindings where 8 are allowed: x, ");  // 512 bytes in 8 segments, and the result
}

TEST_P(BrokenProgram, BindsABufferTwice) {
  first_part().buffers[1] = first_part().buffers[0];
  buffer_of("x").where = Buffer::Where::storage;
  test::expect_error<GraphError>([&] { verify(program, target); }, "binds x twice");
}

TEST_P(BrokenProgram, BindsTheWrongNumber) {
  first_part().buffers.pop_back();
  expect_refusal("binds 1 buffers to a kernel of 2");
}

TEST_P(BrokenProgram, NamesMissingThings) {
  first_part().buffers[0] = 1000;
  expect_refusal("has no buffer 1000");
}

TEST_P(BrokenProgram, WritesFromTwoPartsOfADispatch) {
  spread_out();
  program.cpu.dispatches[0].parts.push_back(first_part());
  expect_refusal("while another part uses it");
}

TEST_P(BrokenProgram, ReadsMemoryThatAnotherPartWrites) {
  spread_out();
  // A copy of the first product's result, once after it, which is valid, and once in the same dispatch.
  const int product = first_part().buffers[1];
  program.buffers.push_back(program.buffers[static_cast<std::size_t>(product)]);
  program.buffers.back().name = "copy";
  program.buffers.back().offset = program.arenas[0];
  program.arenas[0] += 1024;
  KernelSpec copy;
  copy.bindings = 2;
  copy.loads.emplace_back();
  copy.body.emplace_back().kind = Instruction::Kind::load;
  copy.stores.push_back({1, DType::f32, {}, 0});
  program.cpu.kernels.push_back(copy);
  const Dispatch::Part part{static_cast<int>(program.cpu.kernels.size()) - 1,
                            {product, static_cast<int>(program.buffers.size()) - 1},
                            "copy"};
  program.cpu.dispatches.push_back({{part}});
  for (Buffer* buffer : activations()) ++buffer->last;
  verify(program, target);
  program.cpu.dispatches.back().parts.insert(program.cpu.dispatches.back().parts.begin(), first_part());
  expect_refusal("while another part writes it");
}

TEST_P(BrokenProgram, ReadsOtherElementsThanItWrites) {
  // The softmax is in place of the scores: transposed, it would read what it has overwritten.
  const auto is_in_place = [](const KernelSpec& kernel) {
    return kernel.kind == KernelSpec::Kind::loop && !kernel.stores.empty() && kernel.bindings == 1;
  };
  const auto softmax = std::find_if(program.cpu.kernels.begin(), program.cpu.kernels.end(), is_in_place);
  ASSERT_NE(softmax, program.cpu.kernels.end());
  softmax->loads[0].map.strides = {1, 8};
  expect_refusal("reads elements of matmul_1 softmax_2 other than the ones it writes");
}

TEST_P(BrokenProgram, WritesAnInput) {
  const int written = first_part().buffers[1];
  program.buffers[static_cast<std::size_t>(written)].where = Buffer::Where::input;
  expect_refusal("read-only");
}

TEST_P(BrokenProgram, HasTwoBuffersForOneThing) {
  program.buffers.push_back(buffer_of("x"));
  expect_refusal("x has two buffers");
}

TEST(SeparateArenas, HoldOneTensorAtATime) {
  const Target target = Target::webgpu_default();
  Program program = lower(trace([] {
                            const Tensor x = tensor_input("x", {64, 64});
                            output("y", matmul(matmul(x, x), x));
                          }),
                          target);
  // The second product moves after the first in the same arena: no bytes in common, but one GPU buffer.
  std::vector<Buffer*> activations;
  for (Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena) activations.push_back(&buffer);
  ASSERT_EQ(activations.size(), 2u);
  activations[1]->arena = activations[0]->arena;
  activations[1]->offset = program.arenas[0];
  program.arenas[0] *= 2;
  test::expect_error<GraphError>([&] { verify(program, target); }, "must hold one at a time");
}

}  // namespace
}  // namespace jerboa
