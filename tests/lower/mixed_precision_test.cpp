#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/lower/lower.h>

#include "graphs.h"

// The tensors that a training step in mixed precision keeps in memory, and the kernels that it avoids.
namespace jerboa::mixed_precision_test {
namespace {

using test::gpt_step;

constexpr int batch = 2, length = 16, vocabulary = 96;

Target gpu() {
  Target target = Target::webgpu_default();
  target.max_bindings = 16;
  target.f16 = true;
  target.subgroup_size = 32;
  target.subgroup_matrices = SubgroupMatrices::native;
  return target;
}

const Program& step() {
  static const Program program =
      lower(gpt_step({.vocab = vocabulary, .width = 64, .layers = 2, .heads = 2, .context = length}, batch, length,
                     AdamW{.lr = 1e-3, .weight_decay = 0.1}, Precision::mixed_f16),
            gpu());
  return program;
}

// Calls f(kernel, part) for each part of each dispatch.
template <class F>
void for_each_part(const Program& program, F f) {
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts)
      f(program.cpu.kernels[static_cast<std::size_t>(part.kernel)], part);
}

const Buffer& buffer_of(const Program& program, const Dispatch::Part& part, int binding) {
  return program.buffers[static_cast<std::size_t>(part.buffers[static_cast<std::size_t>(binding)])];
}

// A loop that does nothing but convert a tensor.
bool only_converts(const KernelSpec& kernel) {
  return kernel.kind == KernelSpec::Kind::loop && kernel.body.size() == 2 && kernel.body[1].op == Op::cast;
}

TEST(MixedPrecisionStep, KeepsLogitsInHalfPrecisionOnly) {
  const Dim logits(batch * length * vocabulary);
  int halves = 0;
  for (const Buffer& buffer : step().buffers) {
    if (!(buffer.elements == logits) || buffer.where != Buffer::Where::arena) continue;
    EXPECT_EQ(buffer.dtype, DType::f16) << buffer.name;
    ++halves;
  }
  EXPECT_GE(halves, 1);
}

TEST(MixedPrecisionStep, FusesAllConversions) {
  for_each_part(step(), [](const KernelSpec& kernel, const Dispatch::Part& part) {
    EXPECT_FALSE(only_converts(kernel)) << part.label;
  });
}

TEST(MixedPrecisionStep, KeepsGradientsOfProductsInHalfPrecisionUntilTheUpdate) {
  for_each_part(step(), [](const KernelSpec& kernel, const Dispatch::Part& part) {
    if (kernel.kind != KernelSpec::Kind::matmul) return;
    if (part.label.starts_with("add_")) return;  // the residual stream
    for (const Store& store : kernel.stores) EXPECT_EQ(store.dtype, DType::f16) << part.label;
  });
  const auto squares = std::find_if(step().cpu.kernels.begin(), step().cpu.kernels.end(), [](const KernelSpec& kernel) {
    return kernel.kind == KernelSpec::Kind::whole && kernel.op == Op::sum_squares;
  });
  ASSERT_NE(squares, step().cpu.kernels.end());
  EXPECT_TRUE(std::any_of(squares->operands.begin(), squares->operands.end(),
                          [](const TensorAccess& operand) { return operand.dtype == DType::f16; }));
}

TEST(MixedPrecisionStep, UpdatesParametersAndTheirHalfPrecisionCopiesInOneKernel) {
  int copying = 0;
  for_each_part(step(), [&](const KernelSpec& kernel, const Dispatch::Part& part) {
    const auto writes = [&](const char* prefix) {
      return std::any_of(kernel.stores.begin(), kernel.stores.end(), [&](const Store& store) {
        return buffer_of(step(), part, store.binding).name.starts_with(prefix);
      });
    };
    if (!writes("f16/")) return;
    EXPECT_TRUE(writes("adam_v/")) << part.label;
    ++copying;
  });
  EXPECT_EQ(copying, 1);
}

TEST(MixedPrecisionStep, UpdatesEachKindOfParameterInOneKernel) {
  int updates = 0;
  for_each_part(step(), [&](const KernelSpec& kernel, const Dispatch::Part& part) {
    updates += static_cast<int>(std::any_of(kernel.stores.begin(), kernel.stores.end(), [&](const Store& store) {
      const Buffer& to = buffer_of(step(), part, store.binding);
      return to.name.starts_with("adam_v/");
    }));
  });
  // With and without decay, each with gradients of f16 and of f32; the two embeddings are too few to be pooled.
  EXPECT_EQ(updates, 5) << print(step());
}

}  // namespace
}  // namespace jerboa::mixed_precision_test
