#include <gtest/gtest.h>

#include <jerboa/base/host_tensor.h>

namespace jerboa::test::host_tensor_test {
namespace {

// The bits of an i32, read as u32: those of -1 are all ones.
TEST(HostTensor, WrapsNegativeNumbersInU32) {
  const HostTensor values(DType::u32, {4}, {-1, -2147483648.0, 0, 4294967295.0});
  EXPECT_EQ(values.number(0), 4294967295.0);
  EXPECT_EQ(values.number(1), 2147483648.0);
  EXPECT_EQ(values.number(2), 0);
  EXPECT_EQ(values.number(3), 4294967295.0);
}

TEST(HostTensor, BytesOfElementsAreWhole) {
  EXPECT_EQ(bytes_of(DType::f32, 3), 12);
  EXPECT_EQ(bytes_of(DType::i4, 33), 17);
  EXPECT_EQ(bytes_of(DType::boolean, 1), 4);
  EXPECT_EQ(bytes_of(DType::f16, 0), 0);
}

}  // namespace
}  // namespace jerboa::test::host_tensor_test
