#include "text/json_cursor.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

namespace jerboa {
namespace {

std::string read_string(std::string_view json) { return std::string(JsonCursor(json, "test.json").string()); }

TEST(JsonCursor, ReadsStrings) {
  for (const std::string_view json :
       {R"("")", R"("plain")", R"("\"\\\/\b\f\n\r\t")", R"("\u0120x\ud83d\ude80")", R"("é\u00e9")"})
    EXPECT_EQ(read_string(json), nlohmann::json::parse(json).get<std::string>()) << json;
}

TEST(JsonCursor, RejectsMalformedStrings) {
  for (const std::string_view json : {"", "x", "\"open", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude80\"",
                                      "\"\\ud83d\\u0041\"", "\"line\nbreak\"", "\"\\"})
    EXPECT_THROW(read_string(json), FileError) << json;
}

TEST(JsonCursor, WalksObjectsAndArrays) {
  JsonCursor cursor(R"( {"a": [1, -2.5e1, true, null], "skipped": {"x": [[], {"y": "}"}]}, "b": [], "c": {}} )",
                    "test.json");
  cursor.begin_object();
  std::string_view key;
  ASSERT_TRUE(cursor.next_key(key));
  EXPECT_EQ(key, "a");
  cursor.begin_array();
  ASSERT_TRUE(cursor.next_element());
  EXPECT_EQ(cursor.integer(), 1);
  ASSERT_TRUE(cursor.next_element());
  EXPECT_EQ(cursor.number(), -25);
  ASSERT_TRUE(cursor.next_element());
  EXPECT_TRUE(cursor.boolean());
  ASSERT_TRUE(cursor.next_element());
  EXPECT_TRUE(cursor.null());
  EXPECT_FALSE(cursor.next_element());
  ASSERT_TRUE(cursor.next_key(key));
  EXPECT_EQ(cursor.skip_value(), R"({"x": [[], {"y": "}"}]})");
  ASSERT_TRUE(cursor.next_key(key));
  cursor.begin_array();
  EXPECT_FALSE(cursor.next_element());
  ASSERT_TRUE(cursor.next_key(key));
  cursor.begin_object();
  EXPECT_FALSE(cursor.next_key(key));
  EXPECT_FALSE(cursor.next_key(key));
}

TEST(JsonCursor, NamesTheLine) {
  JsonCursor cursor("{\n\"a\": 1\n\"b\": 2}", "test.json");
  cursor.begin_object();
  std::string_view key;
  cursor.next_key(key);
  cursor.integer();
  try {
    cursor.next_key(key);
    FAIL() << "a missing comma is an error";
  } catch (const FileError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("test.json:3: expected ','")) << error.what();
  }
}

TEST(JsonCursor, RejectsNumbersThatAreNotJson) {
  for (const std::string_view json : {"inf", "nan", "-inf", "1e999", "-1e999", "", "1x"})
    EXPECT_THROW(JsonCursor(json, "test.json").number(), FileError) << json;
  for (const std::string_view json : {"9223372036854775808", "1.5", "1e3", ""})
    EXPECT_THROW(JsonCursor(json, "test.json").integer(), FileError) << json;
}

TEST(JsonCursor, RejectsTextAfterTheEnd) {
  JsonCursor cursor("{} ", "test.json"), more("{} {", "test.json");
  std::string_view key;
  for (JsonCursor* one : {&cursor, &more}) {
    one->begin_object();
    EXPECT_FALSE(one->next_key(key));
  }
  EXPECT_NO_THROW(cursor.finish());
  EXPECT_THROW(more.finish(), FileError);
}

TEST(JsonCursor, SkipsDeepNestingWithoutRecursion) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(JsonCursor(deep, "deep.json").skip_value().size(), deep.size());
  EXPECT_THROW(JsonCursor(std::string_view(deep).substr(1), "deep.json").begin_object(), FileError);
}

}  // namespace
}  // namespace jerboa
