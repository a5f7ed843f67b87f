#include "base/parse_json.h"

#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include <jerboa/base/error.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

using test::expect_error;

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
}

void refuse(const std::string& text, const std::string& why) {
  expect_error<FileError>([&] { parse_json(text, "a.json"); }, "a.json: " + why);
  expect_error<FileError>([&] { parse_ordered_json(text, "a.json"); }, "a.json: " + why);
}

TEST(ParseJson, ReturnsTheValue) {
  const std::string text = R"({"b": [1, -2, 3.5, true, null, "é\n"], "a": {"c": {}, "d": []}})";
  EXPECT_EQ(parse_json(text, "a.json"), nlohmann::json::parse(text));
  EXPECT_EQ(parse_ordered_json(text, "a.json").dump(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(parse_json(" 7 ", "a.json").get<int>(), 7);
}

TEST(ParseJson, IsGivenInfinitiesAsObjects) {
  EXPECT_EQ(with_json_infinities(R"([0, Infinity, -Infinity])"),
            R"([0, {"__float__": "Infinity"}, {"__float__": "-Infinity"}])");
  for (const char* text : {"", "{\"Infinity\": 1}", R"(["a \\", "\"Infinity", 1])", "[\"unfinished \\"})
    EXPECT_EQ(with_json_infinities(text), text);
}

TEST(ParseJson, RefusesInvalidJson) {
  refuse("", "not valid JSON, at byte 0");
  refuse("{\"a\": 1,}", "not valid JSON, at byte 8");
  refuse("[1] 2", "not valid JSON, at byte 4");
  refuse("{\"a\": nan}", "not valid JSON");
  refuse(std::string("[1]\0[2]", 7), "not valid JSON, at byte 3: a zero byte");
  refuse("[\"\xff\"]", "not valid JSON, at byte 2");
}

TEST(ParseJson, BoundsTheNesting) {
  EXPECT_TRUE(parse_json(nested(max_json_depth), "a.json").is_array());
  refuse(nested(max_json_depth + 1), "nested more than 256 deep");
  refuse(std::string(10'000'000, '['), "nested more than 256 deep");
}

TEST(ParseJson, RefusesAKeyThatOccursTwice) {
  refuse(R"({"x": {"a": 1, "b": 2, "a": 3}})", "the key \"a\" occurs twice");
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "a.json").size(), 2U);
}

TEST(ParseJson, RefusesNumbersThatOverflow) {
  refuse("[1e999]", "not valid JSON, at byte 5: number overflow parsing '1e999'");
  EXPECT_TRUE(parse_json("18446744073709551615", "a.json").is_number_unsigned());
  const auto large = parse_json("100000000000000000000", "a.json");
  EXPECT_TRUE(large.is_number_float());
  EXPECT_EQ(large.get<double>(), 1e20);
}

// nlohmann's builder looks up each key of an ordered object by linear search.
TEST(ParseJson, TakesTimeInProportion) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"key number " + std::to_string(i) + "\": 0, ";
  text += "\"last\": 1}";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_ordered_json(text, "a.json").size(), 200'001U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(ParseJson, KeepsMessagesShort) {
  const std::string name(100'000, 'x');
  const std::string message =
      test::message_of<FileError>([&] { parse_json("{\"" + name + "\": 1, \"" + name + "\": 2}", "a.json"); });
  EXPECT_LT(message.size(), 200U);
  EXPECT_LT(test::message_of<FileError>([&] { parse_json("[" + name, "a.json"); }).size(), 400U);
}

TEST(PrintableLine, HasNothingThatATerminalObeys) {
  EXPECT_EQ(printable_line("a\033[31mb\r\nc\x7f\xc2\x9bq é"), "a [31mb  c  q é");
}

}  // namespace
}  // namespace jerboa
