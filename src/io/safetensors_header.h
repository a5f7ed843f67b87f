#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/tensor_view.h>

namespace jerboa::io {

// A safetensors file is a 64-bit header length, a JSON header, and the data. The header maps each tensor's name to its
// type, shape and range of the data; the ranges, in order, cover the data exactly.

/// The position of a tensor in a file.
struct TensorPlace {
  std::string name;
  StoredType type{};
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0, bytes = 0;
};

struct SafeTensorsLayout {
  std::vector<TensorPlace> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

/// The size of a file's header, including its length field, from the first 8 bytes of the file. Throws FileError, with
/// a message that starts with `file`, if a file of `file_bytes` cannot hold it.
std::uint64_t header_bytes(std::span<const std::byte> first, std::uint64_t file_bytes, const std::string& file);

/// Parses a header of header_bytes() and checks all of it; throws FileError, with a message that starts with `file`.
SafeTensorsLayout parse_layout(std::span<const std::byte> header, std::uint64_t file_bytes, const std::string& file);

struct SafeTensorsContent {
  std::vector<TensorView> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

/// The same for a whole file in memory; the tensors are views into it.
SafeTensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

/// The length and header of a file whose data are the tensors' bytes in the order given. Throws UsageError.
std::string encode_header(std::span<const TensorView> tensors, const std::map<std::string, std::string>& metadata);
/// The same; the places' offsets are ignored.
std::string encode_header(std::span<const TensorPlace> tensors, const std::map<std::string, std::string>& metadata);

/// The `weight_map` of a sharded checkpoint's index: tensor to file. Throws FileError, whose message starts with
/// `file`.
std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::string& file);

}  // namespace jerboa::io
