#include <gtest/gtest.h>
#include <string>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>

#include "io/safetensors_files.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

using test::expect_error;
using test::safetensors_file;
using test::TempFolder;
using test::write_text;

void refuse_file(const std::string& bytes, const std::string& part) {
  const TempFolder folder;
  write_text(folder / "bad.safetensors", bytes);
  expect_error<FileError>([&] { SafeTensors::open(folder / "bad.safetensors"); }, "bad.safetensors: " + part);
}

void refuse(const std::string& header, const std::string& part, int data_bytes = 8) {
  refuse_file(safetensors_file(header, std::string(static_cast<std::size_t>(data_bytes), 'x')), part);
}

/// A header of one tensor "t".
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(MalformedSafetensors, LengthIsChecked) {
  refuse_file("", "0 bytes are too few");
  refuse_file("1234567", "7 bytes are too few");
  refuse_file(std::string("\3\0\0\0\0\0\0\0{}", 10),
              "a header of 3 bytes reaches past the end of the file, 2 bytes on");
  refuse_file(std::string("\1\xe1\xf5\5\0\0\0\0{}", 10), "a header of 100000001 bytes is over the limit of 100000000");
  refuse_file(std::string(8, '\xff') + "{}", "a header of 18446744073709551615 bytes is over the limit");
}

TEST(MalformedSafetensors, HeaderMustBeJson) {
  refuse("", "the header does not start with '{'");
  refuse(" {}", "the header does not start with '{'");
  refuse("\xef\xbb\xbf{}", "the header does not start with '{'");
  refuse("[]", "the header does not start with '{'");
  refuse("{",
         "the header is not valid JSON, at byte 9: syntax error while parsing object key - unexpected end of input");
  refuse("{} {}", "the header is not valid JSON, at byte 11");
  refuse("{}x", "the header is not valid JSON, at byte 10");
  refuse("{/**/}", "the header is not valid JSON, at byte 9");
  refuse(R"({"t":})", "the header is not valid JSON, at byte 13");
  refuse("{\"\xff\":{}}", "the header is not valid JSON, at byte 10");
  refuse("{\"\xc3\":{}}", "the header is not valid JSON, at byte 11");
  refuse(std::string("{}\0\0", 4), "the header is not valid JSON, at byte 10: a zero byte");
  refuse(tensor("\"U8\"", "[1e999]", "[0,8]"), "the header is not valid JSON, at byte");
}

TEST(MalformedSafetensors, NamesMustBeUnique) {
  const std::string t = R"("t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  refuse("{" + t + "," + t + "}", "the name \"t\" occurs twice");
  refuse("{" + t + R"(,"\u0074":{}})", "the name \"t\" occurs twice");
  refuse(R"({"__metadata__":{},"__metadata__":{}})", "the name \"__metadata__\" occurs twice", 0);
  refuse(R"({"__metadata__":{"a":"","a":""}})", "__metadata__: \"a\" occurs twice", 0);
  refuse(R"({"t":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
         "tensor \"t\": \"dtype\" occurs twice");
  refuse(R"({"t":{"shape":[8],"shape":[8]}})", "tensor \"t\": \"shape\" occurs twice");
}

TEST(MalformedSafetensors, FieldsMustBeTheThree) {
  refuse(R"({"t":{}})", "tensor \"t\" has no dtype");
  refuse(R"({"t":{"dtype":"U8","data_offsets":[0,8]}})", "tensor \"t\" has no shape");
  refuse(R"({"t":{"dtype":"U8","shape":[8]}})", "tensor \"t\" has no data_offsets");
  refuse(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}})", "tensor \"t\": unknown field \"x\"");
}

TEST(MalformedSafetensors, ValuesMustHaveTheirTypes) {
  refuse(R"({"t":null})", "tensor \"t\" is null, not an object");
  refuse(R"({"t":[]})", "tensor \"t\" is an array, not an object");
  refuse(R"({"t":"U8"})", "tensor \"t\" is a string, not an object");
  refuse(R"({"t":7})", "tensor \"t\" is a number, not an object");
  refuse(tensor("8", "[8]", "[0,8]"), "tensor \"t\": dtype is a number, not a string");
  refuse(tensor("[\"U8\"]", "[8]", "[0,8]"), "tensor \"t\": dtype is an array, not a string");
  refuse(tensor("{}", "[8]", "[0,8]"), "tensor \"t\": dtype is an object, not a string");
  refuse(tensor("\"u8\"", "[8]", "[0,8]"), "tensor \"t\": dtype: unknown type \"u8\"");
  refuse(tensor("\"U8\"", "8", "[0,8]"), "tensor \"t\": shape is a number, not an array");
  refuse(tensor("\"U8\"", "true", "[0,8]"), "tensor \"t\": shape is a boolean, not an array");
  refuse(tensor("\"U8\"", "{}", "[0,8]"), "tensor \"t\": shape is an object, not an array");
  refuse(tensor("\"U8\"", "[[8]]", "[0,8]"), "tensor \"t\": a value of shape is an array, not a whole number");
  refuse(tensor("\"U8\"", "[\"8\"]", "[0,8]"), "tensor \"t\": a value of shape is a string, not a whole number");
  refuse(tensor("\"U8\"", "[null]", "[0,8]"), "tensor \"t\": a value of shape is null, not a whole number");
  refuse(tensor("\"U8\"", "[8.0]", "[0,8]"), "tensor \"t\": a value of shape is the number 8.0, not a whole number");
  refuse(tensor("\"U8\"", "[-8]", "[0,8]"), "tensor \"t\": a value of shape is a negative number");
  refuse(tensor("\"U8\"", "[8]", "[-8,0]"), "tensor \"t\": a value of data_offsets is a negative number");
  refuse(tensor("\"U8\"", "[8]", "8"), "tensor \"t\": data_offsets is a number, not an array");
  refuse(tensor("\"U8\"", "[8]", "[]"), "tensor \"t\": data_offsets holds fewer than two numbers");
  refuse(tensor("\"U8\"", "[8]", "[8]"), "tensor \"t\": data_offsets holds fewer than two numbers");
  refuse(tensor("\"U8\"", "[8]", "[0,8,8]"), "tensor \"t\": data_offsets holds more than two numbers");
  refuse(R"({"__metadata__":[]})", "__metadata__ is an array, not an object");
  refuse(R"({"__metadata__":{"a":1}})", "__metadata__: \"a\" is a number, not a string");
  refuse(R"({"__metadata__":{"a":{"b":""}}})", "__metadata__: \"a\" is an object, not a string");
}

TEST(MalformedSafetensors, NestingIsRefusedAtOnce) {
  refuse(tensor("\"U8\"", std::string(1'000'000, '['), "[0,8]"), "tensor \"t\": a value of shape is an array");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  refuse(objects, "tensor \"a\": unknown field \"a\"");
}

TEST(MalformedSafetensors, OffsetsMustLieInTheData) {
  refuse(tensor("\"U8\"", "[9]", "[0,9]"), "tensor \"t\": data_offsets [0, 9] reach past the 8 bytes of data");
  refuse(tensor("\"U8\"", "[8]", "[8,16]"), "tensor \"t\": data_offsets [8, 16] reach past the 8 bytes of data");
  refuse(tensor("\"U8\"", "[8]", "[8,0]"), "tensor \"t\": data_offsets [8, 0] run backwards");
  refuse(tensor("\"U8\"", "[0]", "[9,9]"), "tensor \"t\": data_offsets [9, 9] reach past the 8 bytes of data");
  refuse(tensor("\"U8\"", "[8]", "[0,9223372036854775807]"),
         "tensor \"t\": data_offsets [0, 9223372036854775807] reach past");
  refuse(tensor("\"U8\"", "[8]", "[0,9223372036854775808]"),
         "tensor \"t\": a value of data_offsets: the number 9223372036854775808 is too large");
  refuse(tensor("\"U8\"", "[8]", "[0,18446744073709551616]"),
         "tensor \"t\": a value of data_offsets is the number 18446744073709551616, not a whole number");
}

TEST(MalformedSafetensors, SizesMustFit) {
  refuse(tensor("\"U8\"", "[7]", "[0,8]"), "tensor \"t\": U8 [7] takes 7 bytes, but data_offsets [0, 8] hold 8");
  refuse(tensor("\"F32\"", "[3]", "[0,8]"), "tensor \"t\": F32 [3] takes 12 bytes, but data_offsets [0, 8] hold 8");
  refuse(tensor("\"F32\"", "[2,0]", "[0,8]"), "tensor \"t\": F32 [2, 0] takes 0 bytes, but data_offsets [0, 8] hold 8");
  refuse(tensor("\"U8\"", "[4294967296,4294967296]", "[0,8]"),
         "tensor \"t\": the size of U8 [4294967296, 4294967296] overflows");
  refuse(tensor("\"F64\"", "[2305843009213693952]", "[0,0]"),
         "tensor \"t\": the size of F64 [2305843009213693952] overflows");
  refuse(tensor("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"),
         "tensor \"t\": the size of U8 [0, 4294967296, 4294967296] overflows");
  refuse(tensor("\"U8\"", "[9223372036854775808]", "[0,8]"),
         "tensor \"t\": a value of shape: the number 9223372036854775808 is too large");
}

TEST(MalformedSafetensors, DataMustBelongToOneTensorEach) {
  const auto two = [](const std::string& a, const std::string& b, int size) {
    const auto one = [&](const std::string& name, const std::string& offsets) {
      return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":)" + offsets +
             "}";
    };
    return "{" + one("a", a) + "," + one("b", b) + "}";
  };
  refuse(two("[0,5]", "[3,8]", 5),
         R"(the data of tensor "b", which starts at 3, overlaps that of tensor "a", which ends at 5)");
  refuse(two("[0,4]", "[0,4]", 4),
         R"(the data of tensor "b", which starts at 0, overlaps that of tensor "a", which ends at 4)");
  refuse(two("[5,8]", "[0,3]", 3), R"(bytes 3 to 5 of the data, before tensor "a", belong to no tensor)");
  refuse(two("[2,5]", "[5,8]", 3), R"(bytes 0 to 2 of the data, before tensor "a", belong to no tensor)");
  refuse(two("[0,3]", "[3,6]", 3), "bytes 6 to 8 of the data, after the last tensor, belong to no tensor");
  refuse("{}", "bytes 0 to 8 of the data, after the last tensor, belong to no tensor");
}

TEST(MalformedSafetensors, MessagesStayShortAndPrintable) {
  const std::string long_name(100'000, 'n');
  const TempFolder folder;
  for (const auto& header :
       {R"({")" + long_name + R"(":1})", std::string(R"({"\u001b[31m\n":1})"), R"({"t":")" + long_name}) {
    write_text(folder / "bad", safetensors_file(header));
    const auto message = test::message_of<FileError>([&] { SafeTensors::open(folder / "bad"); });
    EXPECT_LT(message.size(), 500);
    for (const char c : message) EXPECT_FALSE(c >= 0 && c < ' ') << message;
  }
}

}  // namespace
}  // namespace jerboa
