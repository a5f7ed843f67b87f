#include "generate/schema_merge.h"

#include <algorithm>
#include <fmt/core.h>

#include "generate/schema_error.h"

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

// A property that only one of two schemas lists is an additional one to the other.
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
        refuse_schema(path, "'items' and 'prefixItems' from two schemas that must both hold");
      mine = both(mine, value);
    } else if (key == "anyOf") {
      constexpr std::size_t most = 10'000;
      if (mine.size() * value.size() > most)
        refuse_schema(path, fmt::format("two 'anyOf' of {} and {} alternatives that both hold make more than {}",
                                        mine.size(), value.size(), most));
      Json pairs = Json::array();
      for (const Json& x : mine)
        for (const Json& y : value) pairs.push_back(both(x, y));
      mine = std::move(pairs);
    } else if (key == "allOf") {
      for (const Json& item : value) mine.push_back(item);
    } else if (key == "pattern" || key == "format" || key == "prefixItems" || key == "multipleOf" || key == "oneOf" ||
               key == "$ref" || key == "not" || key == "if" || key == "then" || key == "else" ||
               key == "patternProperties" || key == "propertyNames" || key == "contains") {
      refuse_schema(path, fmt::format("two different '{}' that both hold are not supported", key));
    }
  }
  if (a.contains("properties") || b.contains("properties")) out["properties"] = merge_properties(a, b);
  if (a.contains("additionalProperties") || b.contains("additionalProperties"))
    out["additionalProperties"] = both(additional_of(a), additional_of(b));
  return out;
}

}  // namespace jerboa
