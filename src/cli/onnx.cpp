#include "cli/onnx.h"

#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>

namespace jerboa::cli {
namespace {

using Bytes = std::span<const std::byte>;

// Iterates over the fields of a protobuf message.
class Fields {
 public:
  Fields(Bytes message, const std::string& name) : rest_(message), name_(name) {}

  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    number = static_cast<int>(key >> 3 & 0xfffff);
    switch (key & 7) {
      case 0: value = varint(); break;
      case 1: bytes = take(8); break;
      case 2: bytes = take(varint()); break;
      case 5: bytes = take(4); break;
      default: fail();
    }
    is_number = (key & 7) == 0;
    return true;
  }

  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

  int number = 0;
  bool is_number = false;
  std::uint64_t value = 0;
  Bytes bytes;

  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(take(1)[0]);
      result |= (byte & 127) << shift;
      if (byte < 128) return result;
    }
    fail();
  }
  bool is_empty() const { return rest_.empty(); }

 private:
  [[noreturn]] void fail() const { throw FileError(fmt::format("{}: not a valid ONNX file", name_)); }

  Bytes take(std::uint64_t count) {
    if (count > rest_.size()) fail();
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  Bytes rest_;
  const std::string& name_;
};

std::pair<std::string, OnnxTensor> read_tensor(Bytes message, const std::string& name) {
  std::string label;
  OnnxTensor tensor;
  for (Fields field(message, name); field.next();) {
    if (field.number == 1 && field.is_number) tensor.shape.push_back(static_cast<std::int64_t>(field.value));
    if (field.number == 1 && !field.is_number)
      for (Fields packed(field.bytes, name); !packed.is_empty();)
        tensor.shape.push_back(static_cast<std::int64_t>(packed.varint()));
    if (field.number == 5 && field.is_number) tensor.numbers.push_back(static_cast<std::int64_t>(field.value));
    if (field.number == 5 && !field.is_number)
      for (Fields packed(field.bytes, name); !packed.is_empty();)
        tensor.numbers.push_back(static_cast<std::int64_t>(packed.varint()));
    if (field.number == 2) tensor.type = static_cast<int>(field.value);
    if (field.number == 8) label = field.text();
    if (field.number == 9 || field.number == 4) tensor.bytes = field.bytes;  // raw_data, or packed float_data
  }
  return {label, tensor};
}

// Whether a shape, which may be malformed, has this many elements.
bool has_size(std::span<const std::int64_t> shape, std::size_t count) {
  std::size_t size = 1;
  for (const std::int64_t length : shape) {
    if (length < 0) return false;
    if (__builtin_mul_overflow(size, static_cast<std::size_t>(length), &size)) return false;
  }
  return size == count;
}

OnnxNode read_node(Bytes message, const std::string& name) {
  OnnxNode node;
  for (Fields field(message, name); field.next();) {
    if (field.number == 1) node.inputs.push_back(field.text());
    if (field.number == 3) node.name = field.text();
    if (field.number == 4) node.op = field.text();
  }
  return node;
}

}  // namespace

OnnxGraph read_onnx(Bytes file, const std::string& name) {
  OnnxGraph graph;
  for (Fields field(file, name); field.next();) {
    if (field.number != 7 || field.is_number) continue;
    for (Fields part(field.bytes, name); part.next();) {
      if (part.number == 1) graph.nodes.push_back(read_node(part.bytes, name));
      if (part.number == 5) graph.constants.insert(read_tensor(part.bytes, name));
    }
  }
  return graph;
}

std::vector<float> onnx_values(const OnnxTensor& tensor, const std::string& name) {
  std::vector<float> values;
  if (tensor.type == 1) {
    values.resize(tensor.bytes.size() / sizeof(float));
    // memcpy takes no null pointers, which empty tensors have.
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  } else if (tensor.type == 2 || tensor.type == 3) {
    for (const std::int64_t number : tensor.numbers) values.push_back(static_cast<float>(number));
    for (const std::byte byte : tensor.bytes)
      values.push_back(tensor.type == 2 ? static_cast<float>(std::to_integer<std::uint8_t>(byte))
                                        : static_cast<float>(static_cast<std::int8_t>(byte)));
  } else {
    throw FileError(fmt::format("{}: its values are of the ONNX type {}, which is not supported", name, tensor.type));
  }
  if (!has_size(tensor.shape, values.size()))
    throw FileError(fmt::format("{}: its {} values do not have the shape [{}]", name, values.size(),
                                fmt::join(tensor.shape, ", ")));
  return values;
}

}  // namespace jerboa::cli
