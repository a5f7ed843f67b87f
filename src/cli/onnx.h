#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace jerboa::cli {

/// A constant tensor of an ONNX file.
struct OnnxTensor {
  std::vector<std::int64_t> shape;
  int type = 0;                       ///< ONNX's numbers of types: 1 is f32, 2 u8, 3 i8
  std::span<const std::byte> bytes;   ///< in the file
  std::vector<std::int64_t> numbers;  ///< small integer tensors may be stored as these instead
};
struct OnnxNode {
  std::string op, name;
  std::vector<std::string> inputs;
};
/// The nodes and constants of an ONNX file, which is enough to find its weights.
struct OnnxGraph {
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxTensor> constants;
};

/// `file` must outlive the result. Throws FileError, which names the file `name`, if it is malformed.
OnnxGraph read_onnx(std::span<const std::byte> file, const std::string& name);
/// The values of a tensor as f32. Throws FileError for types other than f32, u8 and i8, and if their number does not
/// match the shape.
std::vector<float> onnx_values(const OnnxTensor& tensor, const std::string& name);

}  // namespace jerboa::cli
