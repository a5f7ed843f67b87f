#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>

namespace jerboa {

/// A plain JSON Schema validator, only for tests and independent of the library's schema compiler.
class JsonValidator {
 public:
  using Json = nlohmann::ordered_json;

  explicit JsonValidator(Json root) : root_(std::move(root)) {}
  bool valid(const Json& value) const { return valid(root_, value); }

 private:
  static bool is_integer(const Json& value) {
    return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
  }

  static bool has_type(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "number") return value.is_number();
    if (type == "integer") return is_integer(value);
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
  }

  static std::size_t characters(const std::string& text) {
    std::size_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return count;
  }

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [key, rule] : schema.items())
      if (!holds(key, rule, schema, value)) return false;
    return true;
  }

  bool holds(const std::string& key, const Json& rule, const Json& schema, const Json& value) const {
    if (key == "type") {
      if (rule.is_string()) return has_type(rule, value);
      for (const Json& type : rule)
        if (has_type(type, value)) return true;
      return false;
    }
    if (key == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
    if (key == "const") return rule == value;
    if (key == "$ref") return valid(root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), value);
    if (key == "anyOf" || key == "oneOf" || key == "allOf") {
      std::size_t count = 0;
      for (const Json& branch : rule) count += valid(branch, value);
      return key == "anyOf" ? count > 0 : key == "oneOf" ? count == 1 : count == rule.size();
    }
    if (value.is_number()) {
      const double number = value.get<double>();
      if (key == "minimum") return number >= rule.get<double>();
      if (key == "maximum") return number <= rule.get<double>();
      if (key == "exclusiveMinimum") return number > rule.get<double>();
      if (key == "exclusiveMaximum") return number < rule.get<double>();
      if (key == "multipleOf" && value.is_number_integer() && rule.is_number_integer())
        return value.get<std::int64_t>() % rule.get<std::int64_t>() == 0;
      if (key == "multipleOf") return std::fmod(number, rule.get<double>()) == 0;
    }
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (key == "minLength") return characters(text) >= rule.get<std::size_t>();
      if (key == "maxLength") return characters(text) <= rule.get<std::size_t>();
      if (key == "pattern") return std::regex_search(text, std::regex(rule.get<std::string>()));
    }
    if (value.is_array()) {
      if (key == "minItems") return value.size() >= rule.get<std::size_t>();
      if (key == "maxItems") return value.size() <= rule.get<std::size_t>();
      const std::size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (key == "prefixItems" && i < prefix && !valid(rule[i], value[i])) return false;
        if (key == "items" && i >= prefix && !valid(rule, value[i])) return false;
      }
    }
    if (value.is_object()) {
      if (key == "minProperties") return value.size() >= rule.get<std::size_t>();
      if (key == "maxProperties") return value.size() <= rule.get<std::size_t>();
      if (key == "required") {
        for (const Json& name : rule)
          if (!value.contains(name.get<std::string>())) return false;
      }
      for (const auto& [name, member] : value.items()) {
        const bool listed = schema.contains("properties") && schema["properties"].contains(name);
        if (key == "properties" && listed && !valid(rule[name], member)) return false;
        if (key == "additionalProperties" && !listed && !valid(rule, member)) return false;
      }
    }
    return true;
  }

  Json root_;
};

}  // namespace jerboa
