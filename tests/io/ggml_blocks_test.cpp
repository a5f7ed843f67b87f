#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/io/gguf.h>
#include <jerboa/io/safetensors.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

constexpr GgmlType block_types[] = {
    GgmlType::Q4_0,  GgmlType::Q4_1,    GgmlType::Q5_0,  GgmlType::Q5_1,   GgmlType::Q8_0,    GgmlType::Q2_K,
    GgmlType::Q3_K,  GgmlType::Q4_K,    GgmlType::Q5_K,  GgmlType::Q6_K,   GgmlType::IQ2_XXS, GgmlType::IQ2_XS,
    GgmlType::IQ2_S, GgmlType::IQ3_XXS, GgmlType::IQ3_S, GgmlType::IQ4_NL, GgmlType::IQ4_XS};

class GgmlBlocks : public testing::TestWithParam<GgmlType> {};

// Random blocks, and blocks that use every entry of the tables: tests/data/ggml/make.py wrote both with ggml's values.
TEST_P(GgmlBlocks, HaveTheBitsThatGgmlComputes) {
  static const auto goldens = SafeTensors::open(JERBOA_SOURCE_DIR "/tests/data/ggml/blocks.safetensors");
  const std::string name(to_string(GetParam()));
  const TensorView &blocks = goldens.view(name + ".blocks"), &values = goldens.view(name + ".values");
  ASSERT_EQ(static_cast<std::size_t>(blocks.shape[1]), block_bytes(GetParam()));
  ASSERT_EQ(static_cast<std::size_t>(values.shape[1]), block_values(GetParam()));
  std::vector<float> made(values.elements());
  dequantise(GetParam(), blocks.bytes, made);
  const std::vector<float> wanted = to_f32(values);
  for (std::size_t i = 0; i < made.size(); ++i)
    ASSERT_EQ(bit_cast<std::uint32_t>(made[i]), bit_cast<std::uint32_t>(wanted[i]))
        << "value " << i % block_values(GetParam()) << " of block " << i / block_values(GetParam()) << ": " << made[i]
        << ", but ggml has " << wanted[i];
}

INSTANTIATE_TEST_SUITE_P(All, GgmlBlocks, testing::ValuesIn(block_types),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(GgmlFloats, AreConverted) {
  const std::uint16_t halves[] = {f32_to_f16(1.5F), 0x0001, 0xfc00};
  std::vector<float> values(3);
  dequantise(GgmlType::F16, std::as_bytes(std::span(halves)), values);
  EXPECT_EQ(values, (std::vector<float>{1.5F, 0x1p-24F, -std::numeric_limits<float>::infinity()}));
  const std::uint16_t brains[] = {f32_to_bf16(-2.5F), f32_to_bf16(1e30F), 0};
  dequantise(GgmlType::BF16, std::as_bytes(std::span(brains)), values);
  EXPECT_EQ(values, (std::vector<float>{-2.5F, bf16_to_f32(f32_to_bf16(1e30F)), 0}));
}

TEST(GgmlBlocksErrors, NameSizesThatDoNotFit) {
  const std::vector<std::byte> bytes(36);
  std::vector<float> values(32);
  test::expect_error<UsageError>([&] { dequantise(GgmlType::Q4_0, bytes, values); },
                                 "36 bytes of Q4_0 are not 32 values: 18 bytes hold 32");
  test::expect_error<UsageError>([&] { dequantise(static_cast<GgmlType>(4), bytes, values); }, "no tensor type 4");
}

}  // namespace
}  // namespace jerboa
