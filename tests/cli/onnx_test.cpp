#include "cli/onnx.h"

#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "support/expect_error.h"

namespace jerboa::cli::onnx_test {
namespace {

// A field of a protobuf message that holds bytes, of fewer than 128.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string number_field(int number, char value) { return {static_cast<char>(number << 3), value}; }

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Onnx, ReadsNodesAndConstants) {
  const std::string node = field(1, "x") + field(1, "w") + field(3, "/layer/MatMul") + field(4, "MatMulInteger");
  const std::string weight =
      number_field(1, 2) + number_field(1, 1) + number_field(2, 3) + field(8, "w") + field(9, "\x05\xff");
  const std::string zero = number_field(2, 2) + field(8, "zero") + field(5, "\x80\x01");  // 128, as a number
  const std::string file = number_field(1, 8) + field(7, field(1, node) + field(5, weight) + field(5, zero));
  const OnnxGraph graph = read_onnx(bytes_of(file), "model.onnx");
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].op, "MatMulInteger");
  EXPECT_EQ(graph.nodes[0].inputs, (std::vector<std::string>{"x", "w"}));
  EXPECT_EQ(graph.constants.at("w").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(onnx_values(graph.constants.at("w"), "w"), (std::vector<float>{5, -1}));
  EXPECT_EQ(onnx_values(graph.constants.at("zero"), "zero"), std::vector<float>{128});
}

TEST(Onnx, RefusesShapesThatItsValuesDoNotHave) {
  const std::vector<std::byte> six(6);
  const auto tensor = [&](std::vector<std::int64_t> shape) { return OnnxTensor{std::move(shape), 3, six, {}}; };
  EXPECT_EQ(onnx_values(tensor({2, 3}), "w").size(), 6u);
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{-1, -6}, {2, 2}, {std::int64_t{1} << 32, std::int64_t{1} << 32}, {0, 6}})
    test::expect_error<FileError>([&] { onnx_values(tensor(shape), "w"); }, "w: its 6 values do not have the shape [");
}

TEST(Onnx, RefusesOtherFiles) {
  for (const std::string& file :
       {std::string("\x3a\x7f"), std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), std::string("\x0f")})
    test::expect_error<FileError>([&] { read_onnx(bytes_of(file), "model.onnx"); },
                                  "model.onnx: not a valid ONNX file");
}

}  // namespace
}  // namespace jerboa::cli::onnx_test
