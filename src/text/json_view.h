#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace jerboa {

/// A JSON value and its path in the file, so that errors can name the place.
class JsonView {
 public:
  JsonView(const nlohmann::json& node, std::string path) : node_(&node), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  /// True if the key exists and is not null.
  bool has(std::string_view key) const;
  JsonView at(std::string_view key) const;
  JsonView at(std::size_t index) const;
  std::size_t size() const;

  std::string string() const;
  std::int64_t integer() const;
  std::string string(std::string_view key) const { return at(key).string(); }
  std::string string(std::string_view key, std::string_view fallback) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::int64_t integer(std::string_view key) const { return at(key).integer(); }
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;

  /// Throws FileError: "PATH: MESSAGE".
  [[noreturn]] void fail(std::string_view message) const;

 private:
  const nlohmann::json* node_;
  std::string path_;
};

}  // namespace jerboa
