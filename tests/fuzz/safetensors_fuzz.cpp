// Whatever the bytes, the reader refuses them with a FileError or yields tensors that are inside the data, match their
// shapes and survive being written and read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include <jerboa/base/error.h>

#include "io/safetensors_header.h"

namespace {

using jerboa::io::SafeTensorsContent;

void require(bool holds) {
  if (!holds) std::abort();
}

/// The file that holds the content.
std::string encode(const SafeTensorsContent& content) {
  std::string file = jerboa::io::encode_header(content.tensors, content.metadata);
  for (const auto& tensor : content.tensors)
    file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  return file;
}

void check_content(const SafeTensorsContent& content, std::span<const std::byte> input) {
  std::size_t covered = 0;
  for (const auto& tensor : content.tensors) {
    require(tensor.bytes.data() >= input.data() &&
            tensor.bytes.data() + tensor.bytes.size() <= input.data() + input.size());
    covered += tensor.bytes.size();
    std::size_t elements = 1;
    for (const auto size : tensor.shape) elements *= static_cast<std::size_t>(size);
    require(to_f32(tensor).size() == elements && to_f64(tensor).size() == elements);
    try {
      require(to_i32(tensor).size() == elements);
    } catch (const jerboa::FileError&) {
    }
  }
  require(covered <= input.size());

  const std::string file = encode(content);
  const auto again = jerboa::io::parse_safetensors(std::as_bytes(std::span(file)), "again");
  require(again.metadata == content.metadata && again.tensors.size() == content.tensors.size());
  require(encode(again) == file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  try {
    check_content(jerboa::io::parse_safetensors(input, "file"), input);
  } catch (const jerboa::FileError&) {
  }
  try {
    jerboa::io::parse_shard_index(std::string_view(reinterpret_cast<const char*>(data), size), "index");
  } catch (const jerboa::FileError&) {
  }
  return 0;
}
