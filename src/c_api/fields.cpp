#include "c_api/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::c_api {
namespace {

nlohmann::json parsed(std::string_view text, const std::string& what) {
  if (text.empty()) return nlohmann::json::object();
  try {
    return parse_json(text, what);
  } catch (const FileError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

Fields::Fields(std::string_view text, const std::string& what) : Fields(parsed(text, what), what) {}

Fields::Fields(const nlohmann::json& value, std::string what)
    : json_(value.is_null() ? nlohmann::json::object() : value), what_(std::move(what)) {
  if (!json_.is_object()) throw UsageError(fmt::format("{} must be a JSON object", what_));
}

void Fields::fail(const char* key, const std::string& wanted) const {
  throw UsageError(
      fmt::format("{}: {} is {}, but must be {}", what_, key, shortened(json_.at(key).dump(), 60), wanted));
}

bool Fields::has(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null();
}

const nlohmann::json& Fields::value(const char* key) {
  static const nlohmann::json none;
  known_.insert(key);
  return has(key) ? json_.at(key) : none;
}

std::string Fields::text(const char* key, std::string otherwise) {
  const nlohmann::json& found = value(key);
  if (found.is_null()) return otherwise;
  if (!found.is_string()) fail(key, "a text");
  return found.get<std::string>();
}

bool Fields::flag(const char* key, bool otherwise) {
  const nlohmann::json& found = value(key);
  if (found.is_null()) return otherwise;
  if (!found.is_boolean()) fail(key, "true or false");
  return found.get<bool>();
}

double Fields::number(const char* key, double otherwise) {
  const nlohmann::json& found = value(key);
  if (found.is_null()) return otherwise;
  if (!found.is_number()) fail(key, "a number");
  return found.get<double>();
}

std::int64_t Fields::integer(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
  const nlohmann::json& found = value(key);
  if (found.is_null()) return otherwise;
  const auto number = json_integer(found);
  if (!number || *number < least || *number > most) fail(key, fmt::format("a whole number from {} to {}", least, most));
  return *number;
}

std::size_t Fields::choice(const char* key, const std::vector<std::string>& names, std::size_t otherwise) {
  const std::string wanted = text(key, names.at(otherwise));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == wanted) return i;
  fail(key, fmt::format("one of {}", fmt::join(names, ", ")));
}

void Fields::finish() const {
  for (const auto& item : json_.items())
    if (!known_.contains(item.key()))
      throw UsageError(fmt::format("{}: the key {} is unknown; known are {}", what_, in_quotes(item.key()),
                                   fmt::join(known_, ", ")));
}

}  // namespace jerboa::c_api
