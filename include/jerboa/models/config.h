#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::models {

/// A Hugging Face config.json; for a multimodal model whose family is not known, that of its text model (text_config),
/// if that family is. A value that is missing, of the wrong type or out of range is a FileError that names the file,
/// the key, the value and what was expected; a key whose value is null counts as missing.
class Config {
 public:
  /// The file itself, or the folder that holds config.json.
  static Config open(const std::filesystem::path& path);
  /// Errors call the file `origin`.
  static Config parse(std::string_view text, std::string origin = "config.json");

  bool has(const std::string& key) const;
  /// In alphabetical order.
  std::vector<std::string> keys() const;
  std::string text(const std::string& key) const;
  int integer(const std::string& key) const;
  double number(const std::string& key) const;
  bool flag(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  /// Any of them may be infinite, which files write as {"__float__": "Infinity"}; among single numbers, only a limit
  /// may.
  std::vector<double> numbers(const std::string& key) const;
  bool is_text(const std::string& key) const;
  /// One whole number, or a list of them.
  std::vector<int> integers(const std::string& key) const;
  /// A whole number from 1 to largest_size, small enough that a product of a few of them does not overflow.
  int size(const std::string& key) const;
  static constexpr int largest_size = 1 << 28;
  /// A whole number from 1 to largest_count: how often a graph repeats something (layers, experts).
  int count(const std::string& key) const;
  static constexpr int largest_count = 4096;
  /// A number above zero.
  double positive(const std::string& key) const;
  /// The bound that something is clipped to or capped at, above zero; 0 if there is none: the key is missing, or its
  /// value infinite.
  double limit(const std::string& key) const;

  std::string text(const std::string& key, std::string otherwise) const;
  int integer(const std::string& key, int otherwise) const;
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  int size(const std::string& key, int otherwise) const;
  double positive(const std::string& key, double otherwise) const;

  /// FileError: "ORIGIN: KEY is VALUE, which REASON".
  [[noreturn]] void fail(const std::string& key, std::string_view reason) const;

  /// The same with values, written as JSON, for keys that are absent from the file. An explicit null is kept: it turns
  /// off a default.
  Config with_defaults(std::string_view json) const;
  /// A nested object; nullopt if it is missing.
  std::optional<Config> section(const std::string& key) const;
  /// As text, with keys in alphabetical order.
  std::string to_json() const;
  const std::string& origin() const { return origin_; }

 private:
  struct Json;
  Config(std::shared_ptr<const Json> json, std::string origin) : json_(std::move(json)), origin_(std::move(origin)) {}
  template <class T>
  T get(const std::string& key, const char* kind) const;
  int within(const std::string& key, int least, int most) const;

  std::shared_ptr<const Json> json_;
  std::string origin_;
};

}  // namespace jerboa::models
