#include "base/convert_floats.h"

#include <bit>
#include <gtest/gtest.h>
#include <vector>

#include <jerboa/base/float16.h>

namespace jerboa::detail {
namespace {

template <class Widen, class Expected>
void expect_widened(Widen widen, Expected expected) {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(halves.size());
  widen(std::as_bytes(std::span(halves)), values);
  for (std::size_t i = 0; i < halves.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected(halves[i]))) << i;
}

TEST(ConvertFloats, WidensEveryPatternAsOneByOne) {
  expect_widened(widen_f16, f16_to_f32);
  expect_widened(widen_bf16, bf16_to_f32);
}

// All upper halves of a float's bits, each with lower halves at which rounding changes, and others.
TEST(ConvertFloats, NarrowsAsOneByOne) {
  std::vector<std::uint32_t> lower{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (std::uint32_t bit = 2; bit < 0x8000; bit *= 2) lower.insert(lower.end(), {bit - 1, bit, bit + 1, 0x8000 + bit});
  std::vector<float> values(lower.size());
  std::vector<std::uint16_t> halves(values.size());
  for (std::uint32_t upper = 0; upper < 1 << 16; ++upper) {
    for (std::size_t i = 0; i < lower.size(); ++i) values[i] = std::bit_cast<float>(upper << 16 | lower[i]);
    narrow_to_f16(values, std::as_writable_bytes(std::span(halves)));
    for (std::size_t i = 0; i < lower.size(); ++i) ASSERT_EQ(halves[i], f32_to_f16(values[i])) << upper << " " << i;
    narrow_to_bf16(values, std::as_writable_bytes(std::span(halves)));
    for (std::size_t i = 0; i < lower.size(); ++i) ASSERT_EQ(halves[i], f32_to_bf16(values[i])) << upper << " " << i;
  }
}

// Bytes of a file may begin anywhere.
TEST(ConvertFloats, TakesBytesOfAnyAlignment) {
  std::vector<std::byte> bytes(2 * 9 + 1);
  const std::vector<float> values{1, -2, 0.5F, 65504, 1e-7F, 0, 3, 4, 5};
  narrow_to_f16(values, std::span(bytes).subspan(1));
  std::vector<float> back(values.size());
  widen_f16(std::span(bytes).subspan(1), back);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(back[i], f16_to_f32(f32_to_f16(values[i])));
}

}  // namespace
}  // namespace jerboa::detail
