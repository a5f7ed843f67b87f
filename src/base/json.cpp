#include <utility>

#include <jerboa/base/error.h>

#include "base/json_value.h"
#include "base/parse_json.h"

namespace jerboa {

JsonValue JsonValue::parse(std::string_view text, std::string_view what) {
  try {
    return make_json(parse_ordered_json(text, what));
  } catch (const FileError& error) {
    throw UsageError(error.what());
  }
}

std::string JsonValue::text() const {
  return json_value(*this).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

JsonValue make_json(nlohmann::ordered_json value) {
  if (value.is_null()) return {};
  return JsonValue(std::make_shared<const JsonValue::Data>(JsonValue::Data{std::move(value)}));
}

const nlohmann::ordered_json& json_value(const JsonValue& json) {
  static const nlohmann::ordered_json null;
  return json.data() == nullptr ? null : json.data()->json;
}

}  // namespace jerboa
