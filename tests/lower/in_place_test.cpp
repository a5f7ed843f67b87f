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

TEST(InPlace, AResultStandsWhereAnOperandDies) {
  EXPECT_EQ(activations([] { output("y", softmax(product(x()))); }), 1);
}

TEST(InPlace, AnEpilogueWritesOverWhatItAdds) {
  EXPECT_EQ(activations([] {
              const Tensor in = x(), a = softmax(product(in));
              output("y", matmul(in, exp(in)) + a);  // the powers, a, and the sum in its place
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

TEST(InPlace, WhatIsReadAcrossStays) {
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

TEST(InPlace, WhatAProductMultipliesStays) {
  EXPECT_EQ(activations([] {
              const Tensor in = x(), a = product(in);
              output("y", matmul(a, in) + a);
            }),
            2);
}

}  // namespace
}  // namespace jerboa::in_place_test
