#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/io/tensor_view.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

using test::expect_error;

/// A tensor whose elements start at an odd address.
template <typename T>
struct Unaligned {
  explicit Unaligned(std::vector<T> values, StoredType type = stored_type_of<T>)
      : storage(1 + values.size() * sizeof(T)) {
    std::memcpy(storage.data() + 1, values.data(), values.size() * sizeof(T));
    view = {"t", type, {static_cast<std::int64_t>(values.size())}, std::span(storage).subspan(1)};
  }
  std::vector<std::byte> storage;
  TensorView view;
};

TEST(StoredType, HasANameAndASizeEach) {
  for (const auto& [type, name, size] : {std::tuple{StoredType::F64, "F64", 8u},
                                         {StoredType::F32, "F32", 4u},
                                         {StoredType::F16, "F16", 2u},
                                         {StoredType::BF16, "BF16", 2u},
                                         {StoredType::I64, "I64", 8u},
                                         {StoredType::I32, "I32", 4u},
                                         {StoredType::I16, "I16", 2u},
                                         {StoredType::I8, "I8", 1u},
                                         {StoredType::U64, "U64", 8u},
                                         {StoredType::U32, "U32", 4u},
                                         {StoredType::U16, "U16", 2u},
                                         {StoredType::U8, "U8", 1u},
                                         {StoredType::BOOL, "BOOL", 1u}}) {
    EXPECT_EQ(to_string(type), name);
    EXPECT_EQ(stored_type_from_string(name), type);
    EXPECT_EQ(size_of(type), size);
  }
  EXPECT_EQ(stored_type_from_string("f32"), std::nullopt);
  EXPECT_EQ(stored_type_from_string(""), std::nullopt);
}

TEST(TensorView, KnowsTheTypeOfValuesInMemory) {
  EXPECT_EQ(stored_type_of<double>, StoredType::F64);
  EXPECT_EQ(stored_type_of<float>, StoredType::F32);
  EXPECT_EQ(stored_type_of<std::int64_t>, StoredType::I64);
  EXPECT_EQ(stored_type_of<std::uint32_t>, StoredType::U32);
  EXPECT_EQ(stored_type_of<std::int16_t>, StoredType::I16);
  EXPECT_EQ(stored_type_of<std::uint8_t>, StoredType::U8);
  EXPECT_EQ(stored_type_of<bool>, StoredType::BOOL);
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto view = view_of("w", {2, 3}, std::span(values));
  EXPECT_EQ(view.name, "w");
  EXPECT_EQ(view.type, StoredType::F32);
  EXPECT_EQ(view.elements(), 6);
  EXPECT_EQ(to_f32(view), values);
}

TEST(TensorView, ConvertsEveryTypeToFloats) {
  const std::vector<float> floats{-2, 0, 7};
  const std::vector<double> doubles{-2, 0, 7};
  const auto expect = [&](const TensorView& view) {
    EXPECT_EQ(to_f32(view), floats) << to_string(view.type);
    EXPECT_EQ(to_f64(view), doubles) << to_string(view.type);
  };
  expect(Unaligned<double>({-2, 0, 7}).view);
  expect(Unaligned<float>({-2, 0, 7}).view);
  expect(Unaligned<std::uint16_t>({0xc000, 0, 0x4700}, StoredType::F16).view);
  expect(Unaligned<std::uint16_t>({0xc000, 0, 0x40e0}, StoredType::BF16).view);
  expect(Unaligned<std::int64_t>({-2, 0, 7}).view);
  expect(Unaligned<std::int32_t>({-2, 0, 7}).view);
  expect(Unaligned<std::int16_t>({-2, 0, 7}).view);
  expect(Unaligned<std::int8_t>({-2, 0, 7}).view);
  EXPECT_EQ(to_f32(Unaligned<std::uint64_t>({1, 200}).view), (std::vector<float>{1, 200}));
  EXPECT_EQ(to_f32(Unaligned<std::uint32_t>({1, 200}).view), (std::vector<float>{1, 200}));
  EXPECT_EQ(to_f32(Unaligned<std::uint16_t>({1, 200}).view), (std::vector<float>{1, 200}));
  EXPECT_EQ(to_f32(Unaligned<std::uint8_t>({1, 200}).view), (std::vector<float>{1, 200}));
  EXPECT_EQ(to_f64(Unaligned<std::uint8_t>({0, 1}, StoredType::BOOL).view), (std::vector<double>{0, 1}));
}

TEST(TensorView, RoundsF64ToTheNearestF32) {
  const auto values = to_f32(Unaligned<double>({0.1, 1e300, -1e-300, std::nan("")}).view);
  EXPECT_EQ(values[0], 0.1f);
  EXPECT_EQ(values[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[2], 0.0f);
  EXPECT_TRUE(std::isnan(values[3]));
}

TEST(TensorView, KeepsF64Whole) { EXPECT_EQ(to_f64(Unaligned<double>({0.1, 1e300}).view), (std::vector{0.1, 1e300})); }

TEST(TensorView, ConvertsIntegersExactly) {
  constexpr auto low = std::numeric_limits<std::int32_t>::min(), high = std::numeric_limits<std::int32_t>::max();
  const std::vector<std::int32_t> extremes{low, -1, high};
  EXPECT_EQ(to_i32(Unaligned<std::int64_t>({low, -1, high}).view), extremes);
  EXPECT_EQ(to_i32(Unaligned<std::int32_t>({low, -1, high}).view), extremes);
  EXPECT_EQ(to_i32(Unaligned<std::int16_t>({-300, 300}).view), (std::vector<std::int32_t>{-300, 300}));
  EXPECT_EQ(to_i32(Unaligned<std::int8_t>({-128, 127}).view), (std::vector<std::int32_t>{-128, 127}));
  EXPECT_EQ(to_i32(Unaligned<std::uint64_t>({5, 0x7fffffff}).view), (std::vector<std::int32_t>{5, high}));
  EXPECT_EQ(to_i32(Unaligned<std::uint32_t>({5, 0x7fffffff}).view), (std::vector<std::int32_t>{5, high}));
  EXPECT_EQ(to_i32(Unaligned<std::uint16_t>({65535}).view), (std::vector<std::int32_t>{65535}));
  EXPECT_EQ(to_i32(Unaligned<std::uint8_t>({255}).view), (std::vector<std::int32_t>{255}));
  EXPECT_EQ(to_i32(Unaligned<std::uint8_t>({0, 1}, StoredType::BOOL).view), (std::vector<std::int32_t>{0, 1}));
}

TEST(TensorView, RefusesIntegersThatDoNotFit) {
  expect_error<FileError>(
      [] {
        to_i32(Unaligned<std::int64_t>({1, 2147483648}).view);
      },
      "tensor \"t\": element 1 is 2147483648");
  expect_error<FileError>([] { to_i32(Unaligned<std::int64_t>({-2147483649}).view); }, "element 0 is -2147483649");
  expect_error<FileError>([] { to_i32(Unaligned<std::uint32_t>({0x80000000}).view); }, "2147483648");
  expect_error<FileError>([] { to_i32(Unaligned<std::uint64_t>({~std::uint64_t{0}}).view); }, "18446744073709551615");
  expect_error<FileError>([] { to_i32(Unaligned<float>({1}).view); }, "tensor \"t\" is F32, but integers are needed");
}

}  // namespace
}  // namespace jerboa
