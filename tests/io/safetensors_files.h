#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace jerboa::test {

/// The bytes of a safetensors file with this header, valid or not, and data.
inline std::string safetensors_file(std::string_view header, std::string_view data = {}) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(data);
}

/// `count` bytes 0, 1, 2, …
inline std::string counting_bytes(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

}  // namespace jerboa::test
