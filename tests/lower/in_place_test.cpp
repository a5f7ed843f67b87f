#include "lower/in_place.h"

#include <gtest/gtest.h>

#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>

// Which results reuse the memory of an operand, and which must not.
namespace jerboa::in_place_test {
namespace {

// The activations of a program as buffers.
int activations(const std::function<void()>& body) {
  int count = 0;
  for (const Buffer& buffer : lower(trace(body), Target::webgpu_default()).buffers)
    if (buffer.where == Buffer::Where::arena) ++count;
  return count;
}

Tensor product(const Tensor& x) { return matmul(x, x); }
Tensor x() { return tensor_input("x", {16, 16}); }

TEST(InPlace, AResultReplacesAnOperandAtItsLastUse) {
  EXPECT_EQ(activations([] { output("y", softmax(product(x()))); }), 1);
}

TEST(InPlace, AnEpilogueOverwritesItsAddend) {
  EXPECT_EQ(activations([] {
              const Tensor in = x(), a = softmax(product(in));
              output("y", matmul(in, exp(in)) + a);  // exp(in), a, and the sum in its place
            }),
            2);
}

TEST(InPlace, AnOperandThatIsReadLaterStays) {
  EXPECT_EQ(activations([] {
              const Tensor a = product(x());
              output("y", matmul(softmax(a), a));
            }),
            3);
}

TEST(InPlace, AnOutputStays) {
  EXPECT_EQ(activations([] {
              const Tensor a = product(x());
              output("a", a);
              output("y", softmax(a));
            }),
            2);
}

TEST(InPlace, OperandsReadAcrossElementsStay) {
  EXPECT_EQ(activations([] {
              const Tensor a = product(x());
              output("y", softmax(transpose(a, {1, 0}) + 1));
            }),
            2);
  EXPECT_EQ(activations([] {
              const Tensor a = product(x());
              output("y", softmax(a + transpose(a, {1, 0})));
            }),
            2);
}

TEST(InPlace, OperandsOfProductsStay) {
  EXPECT_EQ(activations([] {
              const Tensor in = x(), a = product(in);
              output("y", matmul(a, in) + a);
            }),
            2);
}

// Whether the kernel of an op writes its first result over its first operand, on every target.
bool overwrites(Op op, const std::function<void()>& body) {
  for (const Target& target : {Target::cpu(), Target::webgpu_default()}) {
    const Program program = lower(trace(body), target);
    for (const KernelSpec& kernel : program.cpu.kernels)
      if (kernel.kind == KernelSpec::Kind::whole && kernel.op == op &&
          kernel.operands[0].binding != kernel.results[0].binding)
        return false;
  }
  return true;
}

struct Layer {
  Tensor slots = tensor_input("slots", {2}, DType::i32);
  Tensor window = state_input("window", {9, 3, 8}), memory = state_input("memory", {9, 2, 4, 8});
  Recurrent conv =
      causal_conv1d(tensor_input("x", {2, 1, 8}), tensor_input("weight", {8, 4}), {.state = window, .slots = slots});
  Recurrent attended =
      linear_attention(reshape(conv.y, {2, 1, 2, 4}), tensor_input("k", {2, 1, 2, 4}), tensor_input("v", {2, 1, 2, 8}),
                       tensor_input("log_decay", {2, 1, 2}), {}, {.state = memory, .slots = slots});
};

TEST(InPlace, RecurrentStatesAreUpdatedInPlace) {
  const auto body = [] {
    const Layer layer;
    update(layer.window, layer.conv.state);
    update(layer.memory, layer.attended.state);
    output("y", layer.attended.y);
  };
  EXPECT_TRUE(overwrites(Op::causal_conv1d, body));
  EXPECT_TRUE(overwrites(Op::linear_attention, body));
}

TEST(InPlace, AStateThatIsReadAfterwardsStays) {
  const auto body = [] {
    const Layer layer;
    update(layer.memory, layer.attended.state);
    output("y", sum(layer.attended.y) + sum(layer.memory) * sum(layer.attended.state));
  };
  EXPECT_FALSE(overwrites(Op::linear_attention, body));
}

TEST(InPlace, AStateThatAnotherOperandReadsStays) {
  EXPECT_FALSE(overwrites(Op::causal_conv1d, [] {
    const Tensor window = state_input("window", {2, 3, 8});
    const Recurrent conv = causal_conv1d(slice(window, 1, 0, 2), tensor_input("weight", {8, 4}), {.state = window});
    update(window, conv.state);
    output("y", conv.y);
  }));
}

// Rows of a state by slot, as plain ops.
TEST(InPlace, RowsAreWrittenThroughAReshape) {
  EXPECT_TRUE(overwrites(Op::scatter, [] {
    const Tensor slots = tensor_input("slots", {2}, DType::i32), state = state_input("state", {9, 3, 4});
    const Tensor table = reshape(state, {9, 12});
    const Tensor rows = embedding(table, slots) * 2;
    update(state, reshape(scatter(table, broadcast_to(reshape(slots, {2, 1}), {2, 12}), rows, 0), {9, 3, 4}));
  }));
}

}  // namespace
}  // namespace jerboa::in_place_test
