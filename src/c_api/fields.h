#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::c_api {

/// A JSON object that the caller passed. Every value is checked, and an unused key is an error, so that misspelt
/// options do not go unnoticed.
class Fields {
 public:
  /// Throws UsageError if the text is not a JSON object; an empty text is an empty object. `what` names it in messages.
  Fields(std::string_view text, const std::string& what);
  /// The same for a nested value; null is an empty object.
  Fields(const nlohmann::json& value, std::string what);

  bool has(const char* key) const;
  std::string text(const char* key, std::string otherwise);
  bool flag(const char* key, bool otherwise);
  double number(const char* key, double otherwise);
  std::int64_t integer(const char* key, std::int64_t otherwise, std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int32_t>::max());
  int count(const char* key, int otherwise, int least = 0) { return static_cast<int>(integer(key, otherwise, least)); }
  /// The position of a text value in a list of names.
  std::size_t choice(const char* key, const std::vector<std::string>& names, std::size_t otherwise);
  /// Null if the key is absent.
  const nlohmann::json& value(const char* key);
  const std::string& what() const { return what_; }

  /// Throws UsageError that names a key which was never asked for.
  void finish() const;

 private:
  [[noreturn]] void fail(const char* key, const std::string& wanted) const;

  nlohmann::json json_;
  std::string what_;
  std::set<std::string> known_;
};

}  // namespace jerboa::c_api
