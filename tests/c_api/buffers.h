#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <jerboa/c_api/jerboa_c.h>

// The data that crosses the C API: buffers, and bundles of bytes with a description.
namespace jerboa::c_api_test {

inline std::string taken(jerboa_buffer* buffer) {
  std::string bytes(reinterpret_cast<const char*>(jerboa_buffer_data(buffer)), jerboa_buffer_size(buffer));
  jerboa_buffer_free(buffer);
  return bytes;
}

inline std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

inline std::string bundle_of(const nlohmann::json& value, const std::vector<std::string>& parts) {
  nlohmann::json sizes = nlohmann::json::array();
  std::string all;
  for (const std::string& part : parts) {
    sizes.push_back(part.size());
    all += padded(part);
  }
  const std::string text = nlohmann::json{{"parts", sizes}, {"value", value}}.dump();
  std::string bytes(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  return padded(bytes + text) + all;
}

struct OpenedBundle {
  nlohmann::json value;
  std::vector<std::string> parts;
};
inline OpenedBundle opened(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const nlohmann::json description = nlohmann::json::parse(bytes.substr(8, length));
  OpenedBundle out{description.at("value"), {}};
  std::size_t at = padded(bytes.substr(0, 8 + length)).size();
  for (const std::size_t size : description.at("parts")) {
    out.parts.push_back(bytes.substr(at, size));
    at += (size + 7) / 8 * 8;
  }
  return out;
}

inline const uint8_t* unsigned_bytes(const std::string& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

}  // namespace jerboa::c_api_test
