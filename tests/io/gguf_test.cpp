#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/bit_cast.h>
#include <jerboa/base/error.h>
#include <jerboa/io/gguf.h>

#include "support/expect_error.h"
#include "support/gguf_files.h"
#include "support/temp_folder.h"

namespace jerboa::gguf_test {
namespace {

using test::bytes_of;
using test::GgufWriter;

Gguf parsed(const std::string& file) { return Gguf::from_bytes(std::as_bytes(std::span(file)), "a.gguf"); }

void refuse(const std::string& file, const std::string& message) {
  test::expect_error<FileError>([&] { parsed(file); }, "a.gguf: " + message);
}

constexpr float six[] = {1, -2, 3, -4, 5, 0.1F};

GgufWriter small() {
  GgufWriter writer;
  writer.text("general.name", "small");
  writer.tensor("weight", {2, 3}, GgmlType::F32, test::bytes_of_values(six));
  return writer;
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  GgufWriter writer;
  writer.raw("u8", 0, bytes_of(std::uint8_t{200}));
  writer.raw("i8", 1, bytes_of(std::int8_t{-100}));
  writer.raw("u16", 2, bytes_of(std::uint16_t{60'000}));
  writer.raw("i16", 3, bytes_of(std::int16_t{-30'000}));
  writer.u32("u32", 4'000'000'000);
  writer.raw("i32", 5, bytes_of(std::int32_t{-2'000'000'000}));
  writer.f32("f32", 1e-5F);
  writer.flag("yes", true);
  writer.flag("no", false);
  writer.text("text", std::string_view("a\0b", 3));
  writer.texts("texts", {"", "▁the", "x"});
  writer.raw("u64", 10, bytes_of(std::uint64_t{1} << 40));
  writer.raw("i64", 11, bytes_of(-(std::int64_t{1} << 40)));
  writer.raw("f64", 12, bytes_of(0.1));
  writer.list<float>("f32s", 6, {0, -1.5F});
  writer.list<std::int32_t>("i32s", 5, {1, -2, 3});
  writer.list<std::uint8_t>("none", 0, {});
  writer.raw("past", 10, bytes_of(~std::uint64_t{0}));
  writer.array("nested", 9, 2,
               bytes_of(0) + bytes_of(std::uint64_t{2}) + "ab" + bytes_of(8) + bytes_of(std::uint64_t{0}));
  for (const std::uint32_t version : {2, 3}) {
    writer.version = version;
    const std::string bytes = writer.file();
    const Gguf file = parsed(bytes);
    EXPECT_EQ(file.integer("u8"), 200);
    EXPECT_EQ(file.integer("i8"), -100);
    EXPECT_EQ(file.integer("u16"), 60'000);
    EXPECT_EQ(file.integer("i16"), -30'000);
    EXPECT_EQ(file.integer("u32"), 4'000'000'000);
    EXPECT_EQ(file.integer("i32"), -2'000'000'000);
    EXPECT_EQ(file.integer("u64"), std::int64_t{1} << 40);
    EXPECT_EQ(file.integer("i64"), -(std::int64_t{1} << 40));
    EXPECT_EQ(file.number("f32"), 1e-5) << "the decimal number that was meant, not 9.99999974738e-06";
    EXPECT_EQ(file.number("f64"), 0.1);
    EXPECT_EQ(file.number("i8"), -100);
    EXPECT_TRUE(file.flag("yes"));
    EXPECT_FALSE(file.flag("no"));
    EXPECT_EQ(file.text("text"), std::string("a\0b", 3));
    EXPECT_EQ(file.texts("texts"), (std::vector<std::string>{"", "▁the", "x"}));
    EXPECT_EQ(file.numbers("f32s"), (std::vector<float>{0, -1.5F}));
    EXPECT_EQ(file.integers("i32s"), (std::vector<std::int64_t>{1, -2, 3}));
    EXPECT_EQ(file.integers("u8"), std::vector<std::int64_t>{200});
    EXPECT_TRUE(file.integers("none").empty());
    EXPECT_EQ(file.keys().size(), 19u);
    EXPECT_FALSE(file.has("other"));
  }
}

TEST(Gguf, NamesTheExpectedTypeOfAValue) {
  GgufWriter writer;
  writer.u32("number", 1);
  writer.texts("texts", {"a"});
  writer.raw("past", 10, bytes_of(~std::uint64_t{0}));
  writer.raw("flag", 7, "\3");
  const std::string bytes = writer.file();
  const Gguf file = parsed(bytes);
  const auto expect = [](auto action, const std::string& message) { test::expect_error<FileError>(action, message); };
  expect([&] { file.text("number"); }, "a.gguf: \"number\" is not a text");
  expect([&] { file.text("texts"); }, "\"texts\" is not a text");
  expect([&] { file.texts("number"); }, "\"number\" is not a list of strings");
  expect([&] { file.integer("texts"); }, "\"texts\" is not a whole number");
  expect([&] { file.integers("texts"); }, "\"texts\" is not a list of whole numbers");
  expect([&] { file.numbers("texts"); }, "\"texts\" is not a list of f32 numbers");
  expect([&] { file.integer("past"); }, "\"past\" is not a number below 2^63");
  expect([&] { file.flag("flag"); }, "\"flag\" is not true or false");
  expect([&] { file.text("gone"); }, "a.gguf: the metadata has no \"gone\"");
}

TEST(Gguf, ReadsTensorsFromAFileAndFromMemory) {
  GgufWriter writer = small();
  std::string blocks;
  for (int i = 0; i < 6; ++i) blocks += bytes_of(std::uint16_t{0x3c00}) + std::string(32, static_cast<char>(i - 3));
  writer.tensor("blocks", {3, 64}, GgmlType::Q8_0, blocks);
  const test::TempFolder folder;
  const std::string bytes = writer.file();
  test::write_text(folder / "a.gguf", bytes);
  const Gguf opened = Gguf::open(folder / "a.gguf"), mapped = parsed(bytes);
  for (const Gguf* file : {&opened, &mapped}) {
    EXPECT_EQ(file->names(), (std::vector<std::string>{"blocks", "weight"}));
    EXPECT_EQ(file->tensor("weight").shape, (std::vector<std::int64_t>{2, 3}));
    std::vector<float> values(6);
    file->read_f32("weight", values);
    EXPECT_EQ(values, std::vector<float>(std::begin(six), std::end(six)));
    EXPECT_EQ(file->tensor("blocks").type, GgmlType::Q8_0);
    EXPECT_EQ(file->tensor("blocks").elements(), 192u);
    std::vector<float> last(64);
    file->read_f32("blocks", last, 128);
    EXPECT_EQ(last.front(), 1);
    EXPECT_EQ(last.back(), 2);
    test::expect_error<UsageError>([&] { file->read_f32("blocks", values); }, "in blocks of 32: 6 from 0 on");
    test::expect_error<UsageError>([&] { file->read_f32("blocks", last, 160); }, "64 from 160 on cannot be read");
    test::expect_error<UsageError>([&] { file->tensor("other"); }, "has no tensor \"other\"; it has 2 others");
  }
}

TEST(Gguf, ReadsATensorOfManyBuffers) {
  std::vector<float> values((1 << 17) + 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  std::string halves;
  for (const float value : values) halves += bytes_of(static_cast<std::uint16_t>(value));
  GgufWriter writer;
  writer.tensor("long", {static_cast<std::int64_t>(values.size())}, GgmlType::BF16, halves);
  const std::string bytes = writer.file();
  std::vector<float> made(values.size());
  parsed(bytes).read_f32("long", made);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(jerboa::bit_cast<std::uint32_t>(made[i]) >> 16, static_cast<std::uint32_t>(values[i])) << i;
}

TEST(Gguf, HonoursTheAlignment) {
  GgufWriter writer;
  writer.alignment = 128;
  writer.u32("general.alignment", 128);
  writer.tensor("a", {1}, GgmlType::F32, bytes_of(7.0F));
  writer.tensor("b", {1}, GgmlType::F32, bytes_of(8.0F));
  const std::string bytes = writer.file();
  const Gguf file = parsed(bytes);
  EXPECT_EQ(file.tensor("b").offset - file.tensor("a").offset, 128u);
  std::vector<float> value(1);
  file.read_f32("b", value);
  EXPECT_EQ(value[0], 8);
}

TEST(Gguf, RefusesOtherFiles) {
  refuse("", "not a GGUF file: it does not begin with \"GGUF\"");
  refuse("GGU", "not a GGUF file");
  refuse("{\"a\": 1}", "not a GGUF file");
  const auto version = [](std::uint32_t number) {
    GgufWriter writer = small();
    writer.version = number;
    return writer.file();
  };
  refuse(version(1), "version 1 of GGUF is not supported, only 2 and 3; convert the model again");
  refuse(version(4), "version 4 of GGUF is not supported");
  refuse(version(0x03000000), "a big-endian GGUF file, which is not supported");
  test::expect_error<FileError>([] { Gguf::open("no/such.gguf"); }, "no/such.gguf: cannot open");
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string whole = small().file();
  for (std::size_t size = 0; size < whole.size(); ++size)
    test::expect_error<FileError>([&] { parsed(whole.substr(0, size)); }, "a.gguf: ");
  EXPECT_NO_THROW(parsed(whole));
}

// None of these may use the memory or time that they ask for.
TEST(Gguf, ChecksCountsAndSizesBeforeItTakesMemory) {
  constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  GgufWriter writer = small();
  writer.tensors = huge;
  refuse(writer.file(), "the beginning specifies 18446744073709551615 tensors, more than the rest of the file");
  writer = small();
  writer.entries = huge / 2;
  refuse(writer.file(), "the beginning specifies 9223372036854775807 metadata entries, more than");
  for (const std::uint32_t type : {0, 8, 9, 12}) {
    writer = small();
    writer.array("a", type, huge / 4, "");
    refuse(writer.file(), "the value of \"a\" specifies 4611686018427387903 elements, more than");
  }
  writer = small();
  writer.raw("a", 8, bytes_of(huge - 7) + "b");
  refuse(writer.file(), "ends inside the value of \"a\", which needs 18446744073709551608 more bytes");
  const auto described = [](const std::vector<std::int64_t>& shape, std::uint32_t type, std::uint64_t offset) {
    GgufWriter one = small();
    one.description("big", shape, type, offset);
    return one.file();
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  refuse(described({most, most}, 0, 32), "tensor \"big\": [9223372036854775807, 9223372036854775807] of F32");
  refuse(described({most}, 0, 32), "tensor \"big\": [9223372036854775807] of F32 is not a valid shape");
  refuse(described({-1}, 0, 32), "tensor \"big\": the size 18446744073709551615 is too large");
  refuse(described({0, most, most}, 0, 32),
         "tensor \"big\": [0, 9223372036854775807, 9223372036854775807] of F32 is not a valid");
  refuse(described({1, 1, 1, 1, 1}, 0, 32), "tensor \"big\" has 5 axes, more than 4");
  refuse(described({1 << 20}, 0, 32), "tensor \"big\": its 4194304 bytes at 32 reach beyond the end of the data");
  refuse(described({1}, 0, huge - 31),
         "tensor \"big\": its 4 bytes at 18446744073709551584 reach beyond the end of the data");
  refuse(described({1}, 0, 4), "tensor \"big\": its offset 4 is not a multiple of the alignment 32");
  refuse(described({2}, 0, 0), "the tensors \"big\" and \"weight\" overlap");
  refuse(described({2, 48}, 8, 32), "tensor \"big\" has rows of 48 values, but Q8_0 stores blocks of 32");
  refuse(described({}, 8, 32), "tensor \"big\": [] of Q8_0 is not a valid shape");
  refuse(described({32}, 4, 32),
         "tensor \"big\" has type 4, which is not supported; convert the model to one of F32, F16");
}

TEST(Gguf, RefusesAmbiguousAndMalformedHeaders) {
  GgufWriter writer = small();
  writer.u32("general.name", 1);
  refuse(writer.file(), "the key \"general.name\" occurs twice");
  writer = small();
  writer.tensor("weight", {1}, GgmlType::F32, bytes_of(1.0F));
  refuse(writer.file(), "the tensor \"weight\" occurs twice");
  writer = small();
  writer.raw("a", 13, "");
  refuse(writer.file(), "the value of \"a\" has the unknown type 13");
  for (const std::uint32_t alignment : {0, 24}) {
    writer = small();
    writer.u32("general.alignment", alignment);
    refuse(writer.file(), "\"general.alignment\" is not a power of two");
  }
  writer = small();
  writer.text("general.alignment", "32");
  refuse(writer.file(), "\"general.alignment\" is not a power of two stored as u32");
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += bytes_of(9) + bytes_of(std::uint64_t{1});
  writer = small();
  writer.raw("deep", 9, deep);
  refuse(writer.file(), "the value of \"deep\" has arrays nested too deeply");
}

}  // namespace
}  // namespace jerboa::gguf_test
