#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/io/safetensors_writer.h>

#include "io/safetensors_files.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

namespace fs = std::filesystem;
using test::counting_bytes;
using test::expect_error;
using test::read_text;
using test::safetensors_file;
using test::TempFolder;
using test::write_text;

std::string text_of(const TensorView& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

TEST(SafeTensors, ReadsPartsOfATensorThatAreThere) {
  const std::string text =
      safetensors_file(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", counting_bytes(8));
  const auto file = SafeTensors::from_bytes(std::as_bytes(std::span(text)));
  std::array<std::byte, 3> part{};
  file.read_part("a", part, 5);
  EXPECT_EQ(part[0], file.view("a").bytes[5]);
  EXPECT_EQ(part[2], file.view("a").bytes[7]);
  for (const std::size_t from : {std::size_t{6}, std::size_t{9}, SIZE_MAX})
    expect_error<UsageError>([&] { file.read_part("a", part, from); }, "tensor \"a\" has 8 bytes, not 3 from byte");
}

TEST(SafeTensors, ReadsTensorsAndMetadata) {
  const TempFolder folder;
  write_text(folder / "a.safetensors",
             safetensors_file(R"({"__metadata__":{"format":"pt","é":""},)"
                              R"("b":{"shape":[2,2],"dtype":"U8","data_offsets":[4,8]},)"
                              R"("a.\u0062":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                              R"("none":{"dtype":"I64","shape":[3,0],"data_offsets":[4,4]}}  )",
                              counting_bytes(8)));
  const auto file = SafeTensors::open(folder / "a.safetensors");
  EXPECT_EQ(file.size(), 3);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a.b", "b", "none"}));
  EXPECT_TRUE(file.contains("b"));
  EXPECT_FALSE(file.contains("c"));
  EXPECT_EQ(file.metadata(), (SafeTensors::Metadata{{"format", "pt"}, {"é", ""}}));
  EXPECT_EQ(file.path(), folder / "a.safetensors");

  const auto& b = file.view("b");
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.type, StoredType::U8);
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(text_of(b), "\4\5\6\7");
  EXPECT_EQ(file.view("a.b").shape, std::vector<std::int64_t>{});
  EXPECT_EQ(file.view("a.b").elements(), 1);
  EXPECT_EQ(file.view("none").shape, (std::vector<std::int64_t>{3, 0}));
  EXPECT_TRUE(to_f32(file.view("none")).empty());
}

TEST(SafeTensors, ReadsAFileInMemory) {
  const std::vector<float> values{1, 2, 3};
  const auto bytes = encode_safetensors(std::array{view_of("x", {3}, std::span<const float>(values))}, {{"a", "b"}});
  const SafeTensors file = SafeTensors::from_bytes(bytes, "memory");
  EXPECT_EQ(to_f32(file.view("x")), values);
  EXPECT_EQ(file.metadata().at("a"), "b");
  const TempFolder folder;
  write_safetensors(folder / "a", std::array{view_of("x", {3}, std::span<const float>(values))}, {{"a", "b"}});
  EXPECT_EQ(read_text(folder / "a"), std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  expect_error<FileError>([&] { SafeTensors::from_bytes(std::span(bytes).first(20), "memory"); }, "memory: ");
}

TEST(SafeTensors, ConvertsAsItReads) {
  std::vector<std::int64_t> values(300'000);  // more than one conversion block
  std::iota(values.begin(), values.end(), -100'000);
  const TempFolder folder;
  write_safetensors(folder / "a", std::array{view_of("x", {3, 100'000}, std::span<const std::int64_t>(values))});
  const SafeTensors file = SafeTensors::open(folder / "a");
  EXPECT_EQ(file.entry("x").elements(), values.size());
  std::vector<float> read(values.size());
  file.read_f32("x", read);
  EXPECT_EQ(read, to_f32(file.view("x")));
  EXPECT_EQ(read.back(), 199'999);
  expect_error<UsageError>([&] { file.read_f32("x", std::span(read).first(3)); }, "has 300000 elements, not 3");
  expect_error<UsageError>([&] { file.read("x", {}); }, "has 2400000 bytes, not 0");
}

TEST(SafeTensors, RefusesAFileThatBecomesShorter) {
  const std::vector<float> values(100'000, 1);
  const TempFolder folder;
  write_safetensors(folder / "a", std::array{view_of("x", {100'000}, std::span<const float>(values)),
                                             view_of("first", {2}, std::span<const float>(values).first(2))});
  const SafeTensors file = SafeTensors::open(folder / "a");
  fs::resize_file(folder / "a", 5000);
  std::vector<float> read(values.size());
  const char* wanted = "a: ends at byte 5000, but data up to byte";
  expect_error<FileError>([&] { file.view("x"); }, wanted);
  expect_error<FileError>([&] { file.read("x", std::as_writable_bytes(std::span(read))); }, wanted);
  expect_error<FileError>([&] { file.read_f32("x", read); }, wanted);
  EXPECT_EQ(to_f32(file.view("first")), (std::vector<float>{1, 1}));  // still readable
}

TEST(SafeTensors, ReadsAFileWithoutTensors) {
  const TempFolder folder;
  write_text(folder / "a", safetensors_file("{}"));
  EXPECT_EQ(SafeTensors::open(folder / "a").size(), 0);
}

TEST(SafeTensors, ReadsDataThatStartsUnaligned) {
  const TempFolder folder;
  const std::vector<double> values{0.5, -3};
  std::string data(16, '\0');
  std::memcpy(data.data(), values.data(), data.size());
  for (int spaces = 0; spaces < 8; ++spaces) {
    write_text(folder / "a", safetensors_file(R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})" +
                                                  std::string(static_cast<std::size_t>(spaces), ' '),
                                              data));
    EXPECT_EQ(to_f64(SafeTensors::open(folder / "a").view("x")), values);
  }
}

TEST(SafeTensors, KeepsItsViewsWhenMoved) {
  const TempFolder folder;
  write_text(folder / "a", safetensors_file(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "abc"));
  auto file = SafeTensors::open(folder / "a");
  const auto& view = file.view("x");
  const SafeTensors moved = std::move(file);
  EXPECT_EQ(text_of(view), "abc");
  EXPECT_EQ(text_of(moved.view("x")), "abc");
}

TEST(SafeTensors, ListsItsTensorsWhenOneIsUnknown) {
  const TempFolder folder;
  const std::vector<float> value{1};
  std::vector<TensorView> tensors;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
    tensors.push_back(view_of(name, {}, std::span(value)));
  write_safetensors(folder / "f", tensors);
  expect_error<UsageError>([&] { SafeTensors::open(folder / "f").view("z"); },
                           "f has no tensor \"z\"; its 10 tensors are: a, b, c, d, e, f, g, h, i, j");
  tensors.push_back(view_of("k", {}, std::span(value)));
  write_safetensors(folder / "f", tensors);
  const auto message = test::message_of<UsageError>([&] { SafeTensors::open(folder / "f").view("z"); });
  EXPECT_TRUE(message.ends_with("i, j, …")) << message;
}

TEST(WriteSafetensors, RoundTripsEveryType) {
  const TempFolder folder;
  const std::string data = counting_bytes(128);
  std::vector<TensorView> tensors;
  for (const char* type : {"U8", "BOOL", "F16", "F64", "I8", "BF16", "I16", "U16", "F32", "I64", "U64", "I32", "U32"}) {
    const auto stored = *stored_type_from_string(type);
    const auto bytes = std::as_bytes(std::span(data)).first(3 * size_of(stored));
    tensors.push_back({std::string("t.") + type, stored, {3, 1}, bytes});
  }
  tensors.push_back({"empty", StoredType::F32, {0, 7}, {}});
  const SafeTensors::Metadata metadata{{"step", "12"}, {"quote", "\"\n"}};
  write_safetensors(folder / "a", tensors, metadata);

  const auto file = SafeTensors::open(folder / "a");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.size(), tensors.size());
  for (const auto& expected : tensors) {
    const auto& view = file.view(expected.name);
    EXPECT_EQ(view.type, expected.type) << view.name;
    EXPECT_EQ(view.shape, expected.shape) << view.name;
    EXPECT_EQ(text_of(view), text_of(expected)) << view.name;
    const auto address = reinterpret_cast<std::uintptr_t>(view.bytes.data());
    EXPECT_EQ(address % size_of(view.type), 0) << view.name << " is aligned";
  }
}

TEST(WriteSafetensors, WritesTheReferenceFormat) {
  const TempFolder folder;
  const std::vector<std::uint8_t> small{7};
  const std::vector<std::int32_t> large{1};
  write_safetensors(folder / "a", std::vector{view_of("a", {1}, std::span(small)), view_of("b", {}, std::span(large))},
                    {{"format", "pt"}});
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I32","shape":[],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_text(folder / "a"), safetensors_file(header + padding, std::string("\1\0\0\0\7", 5)));
}

TEST(WriteSafetensors, ReplacesTheFileThatItReads) {
  const TempFolder folder;
  std::vector<float> values(100'000);
  std::iota(values.begin(), values.end(), 0.0f);
  write_safetensors(folder / "a", std::vector{view_of("x", {100'000}, std::span(std::as_const(values)))});
  const auto old = SafeTensors::open(folder / "a");
  auto renamed = old.view("x");
  renamed.name = "y";
  write_safetensors(folder / "a", std::vector{old.view("x"), renamed});
  EXPECT_EQ(to_f32(old.view("x")), values);
  EXPECT_EQ(to_f32(SafeTensors::open(folder / "a").view("y")), values);
}

TEST(WriteSafetensors, RefusesWhatNoFileCanHold) {
  const TempFolder folder;
  const std::vector<float> values{1, 2};
  const auto refuse = [&](const std::vector<TensorView>& tensors, std::string_view part) {
    expect_error<UsageError>([&] { write_safetensors(folder / "a", tensors); }, part);
    EXPECT_FALSE(fs::exists(folder / "a"));
  };
  const auto view = view_of("x", {2}, std::span(values));
  refuse({view, view}, "tensor \"x\" cannot be written: another tensor has the same name");
  refuse({view_of("x", {3}, std::span(values))}, "8 bytes do not match F32 [3]");
  refuse({view_of("x", {-1, -2}, std::span(values))}, "8 bytes do not match F32 [-1, -2]");
  refuse({view_of("x", {std::int64_t{1} << 62, 4}, std::span(values))}, "8 bytes do not match");
  refuse({view_of("__metadata__", {2}, std::span(values))}, "is reserved");
  refuse({view_of("\xff", {2}, std::span(values))}, "invalid UTF-8");
}

TEST(WriteSafetensors, ConvertsTheTensorsOfASource) {
  const TempFolder folder;
  const std::array<float, 3> values{1, -2.5F, 0.1F};
  const std::array<std::int64_t, 2> ids{7, -7};
  const std::array tensors{view_of("ids", {2}, std::span<const std::int64_t>(ids)),
                           view_of("values", {3, 1}, std::span<const float>(values))};
  write_safetensors(folder / "a.safetensors", tensors);
  const auto file = SafeTensors::open(folder / "a.safetensors");
  for (const StoredType type : {StoredType::F32, StoredType::F16, StoredType::BF16}) {
    write_safetensors(folder / "b.safetensors", file, type, {{"format", "pt"}});
    const auto made = SafeTensors::open(folder / "b.safetensors");
    EXPECT_EQ(made.entry("values").type, type);
    EXPECT_EQ(made.entry("values").shape, (std::vector<std::int64_t>{3, 1}));
    EXPECT_EQ(made.entry("ids").type, StoredType::I64) << "integers stay as they are";
    EXPECT_EQ(to_i32(made.view("ids")), (std::vector<std::int32_t>{7, -7}));
    EXPECT_EQ(made.metadata().at("format"), "pt");
    const std::vector<float> read = to_f32(made.view("values"));
    EXPECT_EQ(read[1], -2.5F);
    EXPECT_NEAR(read[2], 0.1F, type == StoredType::F32 ? 0 : 1e-3);
  }
  expect_error<UsageError>([&] { write_safetensors(folder / "c.safetensors", file, StoredType::I8); },
                           "as F32, F16 or BF16, not as I8");
}

class Shards : public testing::Test {
 protected:
  void write_shard(std::string_view name, const std::vector<std::string>& tensors,
                   const SafeTensors::Metadata& metadata = {}) {
    std::vector<TensorView> views;
    for (const auto& tensor : tensors)
      views.push_back({tensor, StoredType::U8, {1}, std::as_bytes(std::span(tensor)).first(1)});
    write_safetensors(folder / name, views, metadata);
  }
  void write_index(std::string_view text) { write_text(folder / "model.safetensors.index.json", text); }
  void refuse(std::string_view index, std::string_view part) {
    write_index(index);
    expect_error<FileError>([&] { SafeTensors::open(folder.path()); }, part);
  }

  TempFolder folder;
};

TEST_F(Shards, AreReadThroughTheIndex) {
  write_shard("one.safetensors", {"a", "c", "unlisted"}, {{"format", "pt"}, {"one", "1"}});
  write_shard("two.safetensors", {"b", "c"}, {{"format", "pt"}, {"two", "2"}});
  write_index(R"({"metadata":{"total_size":3,"more":[{"deep":1.5}]},)"
              R"("weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"}})");
  for (const auto& path : {folder.path(), folder / "model.safetensors.index.json"}) {
    const auto all = SafeTensors::open(path);
    EXPECT_EQ(all.names(), (std::vector<std::string>{"a", "b", "c"}));
    for (const auto& name : all.names()) EXPECT_EQ(text_of(all.view(name)), name);
    EXPECT_EQ(all.metadata(), (SafeTensors::Metadata{{"format", "pt"}, {"one", "1"}, {"two", "2"}}));
  }
}

TEST_F(Shards, GiveWayToASingleFile) {
  write_shard("model.safetensors", {"single"});
  write_index("not read");
  EXPECT_EQ(SafeTensors::open(folder.path()).names(), std::vector<std::string>{"single"});
}

TEST_F(Shards, AreMissedInAFolderWithout) {
  expect_error<FileError>([&] { SafeTensors::open(folder.path()); },
                          "the folder has neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(Shards, AreRefusedWithAWrongIndex) {
  write_shard("one.safetensors", {"a"});
  refuse("", "model.safetensors.index.json: not valid JSON, at byte 0");
  refuse(R"({"weight_map":{"a":"one.safetensors"}} x)", "not valid JSON, at byte 39");
  refuse(std::string_view("{}\0", 3), "at byte 2: a zero byte");
  refuse(R"({"weight_map":1e999})", "number overflow");
  refuse("[]", "has no object \"weight_map\"");
  refuse("{}", "has no object \"weight_map\"");
  refuse(R"({"weight_map":["a"]})", "has no object \"weight_map\"");
  refuse(R"({"weight_map":{"a":7}})", "tensor \"a\": the name of its file is not a string");
  refuse(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "the key \"a\" occurs twice");
  refuse(R"({"weight_map":{},"weight_map":{}})", "the key \"weight_map\" occurs twice");
  refuse(R"({"metadata":)" + std::string(100'000, '['), "nested more than 256 deep");
  for (const char* path :
       {"", ".", "..", "../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..\\\\one", "a\\u0000b"})
    refuse(std::string(R"({"weight_map":{"a":")") + path + "\"}}", "is not the name of a file beside the index");
  refuse(R"({"weight_map":{"b":"one.safetensors"}})",
         "tensor \"b\" should be in one.safetensors, which does not have it");
  refuse(R"({"weight_map":{"a":"two.safetensors"}})", "two.safetensors: cannot open: No such file");
  write_text(folder / "bad.safetensors", "junk");
  refuse(R"({"weight_map":{"a":"bad.safetensors"}})", "bad.safetensors: 4 bytes are too few");
}

}  // namespace
}  // namespace jerboa
