#include "server/fields.h"

#include <cmath>
#include <fmt/format.h>

#include "server/api_error.h"

namespace jerboa::server {

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object())
    throw ApiError(400, (where_.empty() ? "the request's body" : where_) + " must be a JSON object", where_);
}

std::string Fields::path(std::string_view name) const {
  return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
}

void Fields::fail(std::string_view name, const std::string& problem) const {
  throw ApiError(400, fmt::format("{} {}", path(name), problem), path(name));
}

const Json* Fields::find(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::require(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) fail(name, "is missing");
  return *found;
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) fail(name, "must be true or false");
  return found->get<bool>();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  const bool fits = found->is_number_integer() &&
                    !(found->is_number_unsigned() && found->get<std::uint64_t>() > std::uint64_t{INT64_MAX});
  if (!fits || found->get<std::int64_t>() < least || found->get<std::int64_t>() > most)
    fail(name, fmt::format("must be an integer from {} to {}", least, most));
  return found->get<std::int64_t>();
}

std::optional<double> Fields::number(std::string_view name, double least, double most) const {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  const double value = found->is_number() ? found->get<double>() : NAN;
  if (!(value >= least && value <= most)) fail(name, fmt::format("must be a number from {} to {}", least, most));
  return value;
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) fail(name, "must be a string");
  return found->get<std::string>();
}

std::string Fields::required_text(std::string_view name) const {
  require(name);
  return *text(name);
}

std::optional<Fields> Fields::object(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  return Fields(*found, path(name));
}

}  // namespace jerboa::server
