#include "generate/schema_merge.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

#include <jerboa/generate/constraint.h>

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;

Json both(const Json& a, const Json& b) {
  if (a == b || b == Json(true)) return a;
  if (a == Json(true)) return b;
  if (a == Json(false) || b == Json(false)) return false;
  return {{"allOf", {a, b}}};
}

bool covers(const std::string& wide, const std::string& narrow) {
  return wide == narrow || (wide == "number" && narrow == "integer");
}

std::vector<std::string> common_types(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> out;
  for (const std::string& x : a)
    for (const std::string& y : b)
      if (covers(x, y) || covers(y, x)) out.push_back(covers(x, y) ? y : x);
  return out;
}

// A property that only one of two schemas lists is, to the other, an additional one.
Json additional_of(const Json& schema) {
  return schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(true);
}

Json merge_properties(const Json& a, const Json& b) {
  Json out = Json::object();
  const Json none = Json::object();
  const Json& in_a = a.contains("properties") ? a["properties"] : none;
  const Json& in_b = b.contains("properties") ? b["properties"] : none;
  for (const auto& [name, schema] : in_a.items())
    out[name] = both(schema, in_b.contains(name) ? in_b[name] : additional_of(b));
  for (const auto& [name, schema] : in_b.items())
    if (!in_a.contains(name)) out[name] = both(schema, additional_of(a));
  return out;
}

std::optional<Json> constants(const Json& schema) {
  if (!schema.is_object()) return std::nullopt;
  if (schema.contains("const")) return Json::array({schema["const"]});
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
  return std::nullopt;
}

}  // namespace

std::string type_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  if (value.is_string()) return "string";
  return value.is_array() ? "array" : "object";
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> out;
  if (!schema.is_object() || !schema.contains("type")) return out;
  const Json& type = schema["type"];
  if (type.is_string()) return {type.get<std::string>()};
  if (type.is_array())
    for (const Json& item : type)
      if (item.is_string()) out.push_back(item.get<std::string>());
  return out;
}

Json merge_schemas(const Json& a, const Json& b, const std::string& path) {
  if (a.is_boolean() || b.is_boolean()) return both(a, b);
  Json out = a;
  for (const auto& [key, value] : b.items()) {
    if (key == "properties" || key == "additionalProperties") continue;
    if (!out.contains(key) || out[key] == value) {
      out[key] = value;
      continue;
    }
    Json& mine = out[key];
    if (key == "type") {
      mine = common_types(types_of(a), types_of(b));
    } else if (key == "required") {
      for (const Json& name : value)
        if (std::find(mine.begin(), mine.end(), name) == mine.end()) mine.push_back(name);
    } else if (key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems" ||
               key == "minProperties") {
      if (mine < value) mine = value;
    } else if (key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems" ||
               key == "maxProperties") {
      if (value < mine) mine = value;
    } else if (key == "enum") {
      Json common = Json::array();
      for (const Json& item : mine)
        if (std::find(value.begin(), value.end(), item) != value.end()) common.push_back(item);
      mine = std::move(common);
    } else if (key == "const") {
      return false;
    } else if (key == "items") {
      if (out.contains("prefixItems") || b.contains("prefixItems"))
        throw ConstraintError(fmt::format("{}: 'items' beside 'prefixItems' in two schemas that both hold", path));
      mine = both(mine, value);
    } else if (key == "anyOf") {
      Json pairs = Json::array();
      for (const Json& x : mine)
        for (const Json& y : value) pairs.push_back(both(x, y));
      mine = std::move(pairs);
    } else if (key == "allOf") {
      for (const Json& item : value) mine.push_back(item);
    } else if (key == "pattern" || key == "format" || key == "prefixItems" || key == "multipleOf" || key == "oneOf" ||
               key == "$ref" || key == "not" || key == "if" || key == "then" || key == "else" ||
               key == "patternProperties" || key == "propertyNames" || key == "contains") {
      throw ConstraintError(fmt::format("{}: two different '{}' that both hold are not supported", path, key));
    }
  }
  if (a.contains("properties") || b.contains("properties")) out["properties"] = merge_properties(a, b);
  if (a.contains("additionalProperties") || b.contains("additionalProperties"))
    out["additionalProperties"] = both(additional_of(a), additional_of(b));
  return out;
}

bool are_disjoint(const Json& a_given, const Json& b_given, const std::function<Json(const Json&)>& resolve) {
  const Json a = resolve(a_given), b = resolve(b_given);
  if (!a.is_object() || !b.is_object()) return a == Json(false) || b == Json(false);
  const auto values_a = constants(a), values_b = constants(b);
  if (values_a && values_b)
    return std::none_of(values_a->begin(), values_a->end(), [&](const Json& value) {
      return std::find(values_b->begin(), values_b->end(), value) != values_b->end();
    });
  const auto types = [](const Json& schema, const std::optional<Json>& values) {
    std::vector<std::string> out = types_of(schema);
    if (out.empty() && values)
      for (const Json& value : *values) out.push_back(type_of(value));
    return out;
  };
  const auto types_a = types(a, values_a), types_b = types(b, values_b);
  if (types_a.empty() || types_b.empty()) return false;
  if (common_types(types_a, types_b).empty()) return true;
  if (types_a != std::vector<std::string>{"object"} || types_b != types_a) return false;
  if (!a.contains("required") || !b.contains("required") || !a.contains("properties") || !b.contains("properties"))
    return false;
  for (const Json& name : a["required"]) {
    if (!name.is_string() || std::find(b["required"].begin(), b["required"].end(), name) == b["required"].end())
      continue;
    const auto key = name.get<std::string>();
    if (!a["properties"].contains(key) || !b["properties"].contains(key)) continue;
    const Json x = resolve(a["properties"][key]), y = resolve(b["properties"][key]);
    const auto constants_x = constants(x), constants_y = constants(y);
    if (constants_x && constants_y && std::none_of(constants_x->begin(), constants_x->end(), [&](const Json& value) {
          return std::find(constants_y->begin(), constants_y->end(), value) != constants_y->end();
        }))
      return true;
  }
  return false;
}

}  // namespace jerboa
