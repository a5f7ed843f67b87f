#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <jerboa/io/gguf.h>

namespace jerboa::test {

/// The bytes of a number as a file holds it.
template <class T>
std::string bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string bytes_of_values(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// Writes GGUF files, valid or not.
class GgufWriter {
 public:
  static std::string counted(std::string_view text) { return bytes_of(std::uint64_t{text.size()}) + std::string(text); }

  /// An entry of any type: the number of the type and the value's bytes.
  void raw(std::string_view key, std::uint32_t type, std::string_view value) {
    metadata_ += counted(key) + bytes_of(type) + std::string(value);
    ++entries;
  }
  void u32(std::string_view key, std::uint32_t value) { raw(key, 4, bytes_of(value)); }
  void f32(std::string_view key, float value) { raw(key, 6, bytes_of(value)); }
  void flag(std::string_view key, bool value) { raw(key, 7, bytes_of(value)); }
  void text(std::string_view key, std::string_view value) { raw(key, 8, counted(value)); }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    for (const std::string& value : values) bytes += counted(value);
    array(key, 8, values.size(), bytes);
  }
  template <class T>
  void list(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) bytes += bytes_of(value);
    array(key, type, values.size(), bytes);
  }
  void array(std::string_view key, std::uint32_t type, std::uint64_t count, std::string_view values) {
    raw(key, 9, bytes_of(type) + bytes_of(count) + std::string(values));
  }

  /// A tensor whose sizes are listed outermost first.
  void tensor(std::string_view name, const std::vector<std::int64_t>& shape, GgmlType type, std::string_view bytes) {
    data_.resize(padded(data_.size()), '\0');
    description(name, shape, static_cast<std::uint32_t>(type), data_.size());
    data_ += bytes;
  }
  void description(std::string_view name, const std::vector<std::int64_t>& shape, std::uint32_t type,
                   std::uint64_t offset) {
    tensors_ += counted(name) + bytes_of(static_cast<std::uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += bytes_of(*size);
    tensors_ += bytes_of(type) + bytes_of(offset);
    ++tensors;
  }

  std::string file() const {
    std::string result = "GGUF" + bytes_of(version) + bytes_of(tensors) + bytes_of(entries) + metadata_ + tensors_;
    result.resize(padded(result.size()), '\0');
    return result + data_;
  }

  std::uint32_t version = 3;
  std::uint64_t alignment = 32, tensors = 0, entries = 0;  ///< tests may change the counts

 private:
  std::size_t padded(std::size_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::string metadata_, tensors_, data_;
};

}  // namespace jerboa::test
