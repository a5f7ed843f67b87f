#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/tensor_view.h>

namespace jerboa::io {

// A safetensors file is a 64-bit header length, a JSON header, and the data. The header maps each tensor's name to its
// type, shape and range of the data; the ranges, in order, cover the data exactly.

struct SafeTensorsContent {
  std::vector<TensorView> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

/// Checks everything that a file can get wrong; throws FileError, whose message starts with `file`.
SafeTensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

/// The length and header of a file whose data are the tensors' bytes in the order given. Throws UsageError.
std::string encode_header(std::span<const TensorView> tensors, const std::map<std::string, std::string>& metadata);

/// The `weight_map` of a sharded checkpoint's index: tensor to file. Throws FileError, whose message starts with
/// `file`.
std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::string& file);

}  // namespace jerboa::io
