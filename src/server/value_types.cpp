#include "server/value_types.h"

#include <fmt/format.h>

namespace jerboa::server {
namespace {

constexpr int most_references = 32;

std::string type_of(const Json& value) {
  if (value.is_number()) return value.is_number_integer() ? "integer" : "number";
  return value.type_name();  // as JSON schemas call them
}

bool is_allowed(const Json& value, const ValueTypes& types) {
  const std::string type = type_of(value);
  return types.empty() || types.contains(type) || (type == "integer" && types.contains("number"));
}

// Models write Python's constants as well, which some templates show.
Json parsed(const std::string& text) {
  if (text == "True") return true;
  if (text == "False") return false;
  if (text == "None") return nullptr;
  return Json::parse(text, nullptr, false);
}

void add_types(const Json& schema, const Json& root, int references, ValueTypes& out, bool& is_any) {
  const auto add_all = [&](const Json& branches) {
    for (const Json& branch : branches) add_types(branch, root, references, out, is_any);
  };
  if (!schema.is_object()) {
    is_any = true;
  } else if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    const std::string target = reference->is_string() ? reference->get<std::string>() : "";
    const bool is_pointer = target.rfind("#/", 0) == 0 && references < most_references;
    try {
      add_types(is_pointer ? root.at(Json::json_pointer(target.substr(1))) : Json(), root, references + 1, out, is_any);
    } catch (const Json::exception&) {
      is_any = true;
    }
  } else if (schema.contains("const")) {
    out.insert(type_of(schema["const"]));
  } else if (schema.contains("enum")) {
    for (const Json& value : schema["enum"]) out.insert(type_of(value));
  } else if (schema.contains("anyOf")) {
    add_all(schema["anyOf"]);
  } else if (schema.contains("oneOf")) {
    add_all(schema["oneOf"]);
  } else if (schema.contains("type") && schema["type"].is_string()) {
    out.insert(schema["type"].get<std::string>());
  } else if (schema.contains("type") && schema["type"].is_array()) {
    for (const Json& type : schema["type"])
      if (type.is_string()) out.insert(type.get<std::string>());
  } else {
    is_any = true;
  }
}

}  // namespace

ValueTypes value_types(const Json& schema, const Json& root) {
  ValueTypes out;
  bool is_any = false;
  add_types(schema, root, 0, out, is_any);
  return is_any ? ValueTypes() : out;
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
