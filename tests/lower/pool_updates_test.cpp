#include "lower/pool_updates.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/lower/lower.h>

#include "graphs.h"
#include "support/expect_error.h"

// Updates that wait for all gradients, as with a clipped norm, become one kernel over pooled tensors.
namespace jerboa {
namespace {

using test::Gpt;
using test::gpt_step;

const Gpt small{.vocab = 32, .width = 64, .layers = 2, .heads = 2, .context = 16};
Program lowered(const Gpt& model, const Optimizer& optimizer, const Target& target = Target::webgpu_default()) {
  return lower(gpt_step(model, 2, 5, optimizer), target);
}

int pools(const Program& program, Buffer::Where where = Buffer::Where::pool) {
  std::set<int> wholes;
  for (const Buffer& buffer : program.buffers)
    if (buffer.within >= 0 && program.buffers[static_cast<std::size_t>(buffer.within)].where == where)
      wholes.insert(buffer.within);
  return static_cast<int>(wholes.size());
}

bool is_parameter(const Buffer& buffer) {
  const bool kept = buffer.where == Buffer::Where::storage || buffer.where == Buffer::Where::pool;
  return kept && buffer.elements.upper_bound() > 1 && !buffer.name.starts_with("adam_") &&
         !buffer.name.starts_with(gradient_prefix);
}

// Kernels that write parameters.
int updates(const Program& program) {
  int count = 0;
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) {
      const auto written = written_bindings(program.cpu.kernels[static_cast<std::size_t>(part.kernel)]);
      bool writes = false;
      for (std::size_t i = 0; i < written.size(); ++i)
        writes |= written[i] && is_parameter(program.buffers[static_cast<std::size_t>(part.buffers[i])]);
      count += static_cast<int>(writes);
    }
  return count;
}

const KernelSpec* squares(const Program& program) {
  for (const KernelSpec& kernel : program.cpu.kernels)
    if (kernel.kind == KernelSpec::Kind::whole && kernel.op == Op::sum_squares) return &kernel;
  return nullptr;
}

bool clears(const Program& program) {
  return std::any_of(program.cpu.dispatches.begin(), program.cpu.dispatches.end(),
                     [](const Dispatch& dispatch) { return dispatch.parts.front().label.starts_with("clear "); });
}

TEST(PooledUpdates, AreOneKernelBehindAClippedNorm) {
  const Program program = lowered(small, Adam{.lr = 1e-3, .clip_norm = 1});
  EXPECT_EQ(updates(program), 1) << print(program);
  EXPECT_EQ(pools(program), 4);  // parameters, gradients and two moments
  ASSERT_NE(squares(program), nullptr);
  EXPECT_EQ(squares(program)->operands.size(), 1u);
}

TEST(PooledUpdates, AreOneKernelForEachRule) {
  const Program program = lowered(small, AdamW{.lr = 1e-3, .weight_decay = 0.1, .clip_norm = 1});
  EXPECT_EQ(updates(program), 2) << print(program);
  EXPECT_EQ(squares(program)->operands.size(), 2u);
}

TEST(PooledUpdates, AreOneKernelWithoutANorm) {
  const Program program = lowered(small, Adam{.lr = 1e-3});
  EXPECT_EQ(updates(program), 1) << print(program);
  EXPECT_EQ(squares(program), nullptr);
}

TEST(PooledUpdates, AreLeftBehindTheirProductsWhereTheyAreFew) {
  const Program program = lower(training_graph(
                                    {{"x", {16, 32}, DType::f32}},
                                    [](const Inputs& in) {
                                      const Tensor y = matmul(in["x"], param_input("weight", {32, 8}));
                                      return mean(y * y);
                                    },
                                    Adam{.lr = 1e-3}),
                                Target::webgpu_default());
  EXPECT_EQ(pools(program), 0);
  EXPECT_EQ(updates(program), 1);
  const bool behind = std::any_of(program.cpu.kernels.begin(), program.cpu.kernels.end(), [](const KernelSpec& kernel) {
    return kernel.kind == KernelSpec::Kind::matmul && kernel.stores.size() >= 3;
  });
  EXPECT_TRUE(behind) << print(program);
}

TEST(PooledUpdates, AreForDevicesThatWantThem) {
  Target target = Target::webgpu_default();
  target.pool_updates = false;
  const Program program = lowered(small, Adam{.lr = 1e-3, .clip_norm = 1}, target);
  EXPECT_EQ(pools(program) + pools(program, Buffer::Where::arena), 0);
  EXPECT_GT(updates(program), 20);
}

// Parameters of these sizes, updated by a fraction of their gradients, which are not kept.
Graph scaled_step(std::int64_t elements, bool reads_first = false) {
  return trace([&] {
    const Tensor x = tensor_input("x", {elements});
    std::vector<Operand> grads;
    std::vector<Tensor> params;
    for (int i = 0; i < 6; ++i) {
      params.push_back(param_input("p" + std::to_string(i), {elements}));
      grads.emplace_back(cumsum(params.back() * x));
    }
    const Tensor scale = 1 / sum_squares(grads);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const Tensor next = params[i] - grads[i].tensor() * scale;
      update(params[i], next);
      if (i == 0 && reads_first) output("y", cumsum(next));
    }
  });
}

TEST(PooledUpdates, ReadGradientsThatAreAdjacentInAnArena) {
  const Program program = lower(scaled_step(64), Target::webgpu_default());
  EXPECT_EQ(pools(program), 1) << print(program);
  EXPECT_EQ(pools(program, Buffer::Where::arena), 1);
  EXPECT_EQ(squares(program)->operands.size(), 1u);
}

TEST(PooledUpdates, ClearGapsBetweenAccumulatedGradients) {
  EXPECT_TRUE(clears(lower(scaled_step(65), Target::webgpu_default())));
  EXPECT_FALSE(clears(lower(scaled_step(64), Target::webgpu_default())));
}

TEST(PooledUpdates, TakeSeveralPoolsWhereBindingsAreSmall) {
  Target target = Target::webgpu_default();
  target.max_binding_bytes = 16 << 10;
  const Gpt narrow{.vocab = 32, .width = 16, .layers = 4, .heads = 2, .context = 16};
  const Program program = lowered(narrow, Adam{.lr = 1e-3, .clip_norm = 1}, target);
  EXPECT_GE(pools(program), 8) << print(program);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.within < 0) continue;
    EXPECT_LE(program.buffers[static_cast<std::size_t>(buffer.within)].bytes, target.max_binding_bytes);
  }
}

TEST(PooledUpdates, StayWhereTheirResultIsReadAgain) {
  EXPECT_EQ(updates(lower(scaled_step(64), Target::webgpu_default())), 1);
  // The first one is read after its update, so that update cannot wait for the others.
  const Program program = lower(scaled_step(64, true), Target::webgpu_default());
  EXPECT_EQ(updates(program), 2) << print(program);
}

class BrokenPool : public ::testing::Test {
 protected:
  Target target = Target::webgpu_default();
  Program program = lower(scaled_step(64), target);

  std::vector<Buffer*> members(Buffer::Where where) {
    std::vector<Buffer*> found;
    for (Buffer& buffer : program.buffers)
      if (buffer.within >= 0 && buffer.where == where) found.push_back(&buffer);
    return found;
  }
  void expect_refusal(const std::string& text) const {
    test::expect_error<GraphError>([&] { verify(program, target); }, text);
  }
};

TEST_F(BrokenPool, IsFineBefore) { verify(program, target); }

TEST_F(BrokenPool, HasAMemberBeyondItsEnd) {
  for (const auto where : {Buffer::Where::storage, Buffer::Where::arena}) {
    Buffer& buffer = *members(where).back();
    const Buffer before = buffer;
    buffer.inside += std::int64_t{1} << 30;
    buffer.offset += std::int64_t{1} << 30;
    expect_refusal("is not inside");
    buffer = before;
  }
}

TEST_F(BrokenPool, HasMembersThatOverlap) {
  const auto all = members(Buffer::Where::storage);
  all[1]->within = all[0]->within;
  all[1]->inside = all[1]->offset = all[0]->inside;
  expect_refusal("overlap in");
}

TEST_F(BrokenPool, IsEmpty) {
  Buffer pool;
  pool.where = Buffer::Where::pool;
  pool.name = "nothing";
  program.buffers.push_back(pool);
  expect_refusal("nothing is a pool that holds no tensor");
}

TEST_F(BrokenPool, HasInvalidMembers) {
  members(Buffer::Where::storage).front()->within = members(Buffer::Where::arena).front()->within;
  expect_refusal("is not inside");
}

}  // namespace
}  // namespace jerboa
