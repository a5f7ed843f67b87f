#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace jerboa {

/// A JSON value and where it stands in its file, so that whatever is wrong with it is reported with its place.
class JsonView {
 public:
  JsonView(const nlohmann::json& node, std::string path) : node_(&node), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  /// True where the key is there and not null.
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
