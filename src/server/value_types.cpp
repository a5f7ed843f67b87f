#include "server/value_types.h"

#include <fmt/format.h>

namespace jerboa::server {
namespace {

constexpr int max_schemas = 100;  // limit of the schemas examined per value; beyond it, any type is allowed

std::string type_of(const Json& value) {
  if (value.is_number()) return value.is_number_integer() ? "integer" : "number";
  return value.type_name();  // as JSON schemas call them
}

bool is_allowed(const Json& value, const ValueTypes& types) {
  const std::string type = type_of(value);
  return types.empty() || types.contains(type) || (type == "integer" && types.contains("number"));
}

// Models also write Python's constants, which some templates show.
Json parsed(const std::string& text) {
  if (text == "True") return true;
  if (text == "False") return false;
  if (text == "None") return nullptr;
  return Json::parse(text, nullptr, false);
}

// Collects the types that a schema allows, following each reference once.
class TypeCollector {
 public:
  explicit TypeCollector(const Json& root) : root_(root) {}

  void add(const Json& schema) {
    if (is_any_) return;
    if (!schema.is_object() || ++schemas_ > max_schemas) {
      is_any_ = true;
    } else if (const auto reference = schema.find("$ref"); reference != schema.end()) {
      add_target(reference->is_string() ? reference->get<std::string>() : "");
    } else if (schema.contains("const")) {
      types_.insert(type_of(schema["const"]));
    } else if (schema.contains("enum")) {
      for (const Json& value : schema["enum"]) types_.insert(type_of(value));
    } else if (schema.contains("anyOf")) {
      for (const Json& branch : schema["anyOf"]) add(branch);
    } else if (schema.contains("oneOf")) {
      for (const Json& branch : schema["oneOf"]) add(branch);
    } else {
      add_named(schema.value("type", Json()));
    }
  }

  ValueTypes types() const { return is_any_ ? ValueTypes() : types_; }

 private:
  void add_target(const std::string& target) {
    if (!visited_.insert(target).second) return;
    try {
      if (target.starts_with("#/")) return add(root_.at(Json::json_pointer(target.substr(1))));
    } catch (const Json::exception&) {  // dangling reference
    }
    is_any_ = true;
  }

  void add_named(const Json& type) {
    is_any_ = !type.is_string() && !type.is_array();
    for (const Json& name : type.is_array() ? type : Json::array({type}))
      if (name.is_string()) types_.insert(name.get<std::string>());
  }

  const Json& root_;
  std::set<std::string> visited_;
  int schemas_ = 0;
  ValueTypes types_;
  bool is_any_ = false;
};

}  // namespace

ValueTypes value_types(const Json& schema, const Json& root) {
  TypeCollector collector(root);
  collector.add(schema);
  return collector.types();
}

std::string escaped_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  return out;
}

std::string value_json(const std::string& text, const ValueTypes& types) {
  const Json value = parsed(text);
  if (!value.is_discarded() && !value.is_string() && is_allowed(value, types)) return dump(value);
  return '"' + escaped_part(text) + '"';
}

}  // namespace jerboa::server
