#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace jerboa::server {

using Json = nlohmann::ordered_json;

/// One line of JSON; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);

/// Reads the fields of a JSON object in a request. A field that is missing or null counts as absent; one of the wrong
/// type or out of range is an ApiError that names it. Unknown fields are ignored, because clients send many.
class Fields {
 public:
  /// `where` is the path of the object in the request, for messages: "response_format".
  explicit Fields(const Json& object, std::string where = {});

  const Json* find(std::string_view name) const;
  const Json& require(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  std::optional<double> number(std::string_view name, double least, double most) const;
  std::optional<std::string> text(std::string_view name) const;
  std::string required_text(std::string_view name) const;
  /// A field that is an object itself.
  std::optional<Fields> object(std::string_view name) const;

  std::string path(std::string_view name) const;
  [[noreturn]] void fail(std::string_view name, const std::string& problem) const;
  const Json& json() const { return object_; }

 private:
  const Json& object_;
  std::string where_;
};

}  // namespace jerboa::server
