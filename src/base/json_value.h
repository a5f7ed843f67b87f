#pragma once

#include <nlohmann/json.hpp>

#include <jerboa/base/json.h>

namespace jerboa {

struct JsonValue::Data {
  nlohmann::ordered_json json;
};

JsonValue make_json(nlohmann::ordered_json value);
const nlohmann::ordered_json& json_value(const JsonValue& json);

}  // namespace jerboa
