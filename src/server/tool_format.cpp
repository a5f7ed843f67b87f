#include "server/tool_format.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>

#include <jerboa/generate/text_form.h>

#include "base/json_value.h"
#include "server/value_types.h"

namespace jerboa::server {
namespace {

constexpr std::string_view recipient_opening = "<|channel|>commentary to=functions.";

// In order of precedence: templates may mention the marks of a later format.
const std::array<ToolFormat, 5>& formats() {
  static const std::array<ToolFormat, 5> all = {{
      {"harmony", {"<|channel|>"}, CallSyntax::channels, "", "", "arguments", true},
      {"mistral", {"[TOOL_CALLS]"}, CallSyntax::list, "[TOOL_CALLS]", "", "arguments", true},
      {"qwen3_coder", {"<parameter="}, CallSyntax::elements, "<tool_call>", "</tool_call>", "", false},
      {"hermes", {"<tool_call>"}, CallSyntax::objects, "<tool_call>", "</tool_call>", "arguments", false},
      {"llama3", {"<|python_tag|>", "<|start_header_id|>"}, CallSyntax::bare, "<|python_tag|>", "", "parameters", true},
  }};
  return all;
}

Json call_schema(const ToolFormat& format, const Tool& tool) {
  return {{"type", "object"},
          {"properties", {{"name", {{"const", tool.name}}}, {format.arguments_key, tool.parameters}}},
          {"required", {"name", format.arguments_key}},
          {"additionalProperties", false}};
}

// Adjusts the references in a tool's schema, which point into that schema, to its place in a larger one.
void move_references(Json& schema, const std::string& prefix) {
  if (schema.is_array())
    for (Json& item : schema) move_references(item, prefix);
  if (!schema.is_object()) return;
  for (auto& [key, value] : schema.items()) {
    if (key == "$ref" && value.is_string() && value.get_ref<const std::string&>().rfind('#', 0) == 0)
      value = prefix + value.get<std::string>().substr(1);
    else
      move_references(value, prefix);
  }
}

// `root` is the schema of all parameters, which references in `schema` point into.
TextForm value_form(const JsonValue& root, const std::string& key, const Json& schema) {
  const std::string close = "</parameter>", end = "\n" + close + "\n";
  const Json* constants = schema.is_object() && schema.contains("enum") ? &schema["enum"] : nullptr;
  if (constants != nullptr && constants->is_array()) {
    std::vector<TextForm> texts;
    for (const Json& value : *constants)
      texts.push_back(TextForm::text((value.is_string() ? value.get<std::string>() : dump(value)) + end));
    return TextForm::any_of(std::move(texts));
  }
  const ValueTypes types = value_types(schema, json_value(root));
  if (types.empty() || types.contains("string")) {
    // Readers end the value at the first closing tag.
    return TextForm::sequence({TextForm::until(close), TextForm::text("\n")});
  }
  const std::string place = (Json::json_pointer("/properties") / key).to_string();
  return TextForm::sequence({TextForm::json(root, place), TextForm::text(end)});
}

TextForm element_form(const Tool& tool) {
  Json properties = tool.parameters.value("properties", Json::object());
  if (!properties.is_object()) properties = Json::object();
  const JsonValue root = make_json(tool.parameters);
  std::set<std::string> required;
  for (const Json& name : tool.parameters.value("required", Json::array()))
    if (name.is_string()) required.insert(name.get<std::string>());
  std::vector<TextForm> parts = {TextForm::text(fmt::format("<function={}>\n", tool.name))};
  for (const auto& [key, schema] : properties.items()) {
    const TextForm one =
        TextForm::sequence({TextForm::text(fmt::format("<parameter={}>\n", key)), value_form(root, key, schema)});
    parts.push_back(required.contains(key) ? one : TextForm::any_of({one, TextForm::text("")}));
  }
  parts.push_back(TextForm::text("</function>\n</tool_call>"));
  return TextForm::sequence(std::move(parts));
}

// In Harmony's format a space ends the name, so one name may be a prefix of another.
ForcedCall choose_tool(const ToolFormat& format, const std::vector<Tool>& tools) {
  const bool has_channels = format.syntax == CallSyntax::channels;
  std::vector<TextForm> names;
  for (const Tool& tool : tools) names.push_back(TextForm::text(tool.name + (has_channels ? " " : "")));
  return {has_channels ? std::string(recipient_opening) : std::string(format.open),
          compile_form(TextForm::any_of(std::move(names))), true};
}

ForcedCall call_by_name(const ToolFormat& format, const std::vector<Tool>& tools) {
  if (tools.size() != 1) return choose_tool(format, tools);
  const std::string opening = format.syntax == CallSyntax::channels
                                  ? fmt::format("{}{} <|constrain|>json<|message|>", recipient_opening, tools[0].name)
                                  : fmt::format("{}{}[ARGS]", format.open, tools[0].name);
  return {opening, compile_json_schema(make_json(tools[0].parameters))};
}

ForcedCall call_in_elements(const ToolFormat& format, const std::vector<Tool>& tools) {
  std::vector<TextForm> calls;
  for (const Tool& tool : tools) calls.push_back(element_form(tool));
  return {std::string(format.open) + "\n", compile_form(TextForm::any_of(std::move(calls)))};
}

}  // namespace

const ToolFormat& tool_format_of(std::string_view template_source) {
  for (const ToolFormat& format : formats())
    for (const std::string_view sign : format.signs)
      if (template_source.find(sign) != std::string_view::npos) return format;
  return tool_format_named("hermes");
}

const ToolFormat& tool_format_named(std::string_view name) {
  const auto found =
      std::find_if(formats().begin(), formats().end(), [&](const ToolFormat& format) { return format.name == name; });
  if (found == formats().end()) throw UsageError(fmt::format("there is no tool format '{}'", name));
  return *found;
}

ForcedCall force_call(const ToolFormat& format, const std::vector<Tool>& tools, bool parallel,
                      bool names_follow_marks) {
  if (format.syntax == CallSyntax::channels || names_follow_marks) return call_by_name(format, tools);
  if (format.syntax == CallSyntax::elements) return call_in_elements(format, tools);
  const bool is_list = format.syntax == CallSyntax::list;
  Json any = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    Tool tool = tools[i];
    const std::string place = tools.size() == 1 ? "" : fmt::format("/anyOf/{}", i);
    move_references(tool.parameters,
                    fmt::format("#{}{}/properties/{}", is_list ? "/items" : "", place, format.arguments_key));
    any.push_back(call_schema(format, tool));
  }
  const Json one = any.size() == 1 ? any[0] : Json{{"anyOf", any}};
  const Json schema =
      is_list ? Json{{"type", "array"}, {"minItems", 1}, {"maxItems", parallel ? 8 : 1}, {"items", one}} : one;
  const std::string opening = is_list                             ? std::string(format.open)
                              : format.syntax == CallSyntax::bare ? ""
                                                                  : std::string(format.open) + "\n";
  return {opening, compile_json_schema(make_json(schema))};
}

std::string describe_tools(const Json& tools_json) {
  std::string out = "You may call functions to answer the user. These are their signatures, one per line:\n<tools>\n";
  for (const Json& tool : tools_json) out += dump(tool) + "\n";
  return out +
         "</tools>\nTo call one, answer with a JSON object of its name and arguments inside of tool_call tags:\n"
         "<tool_call>\n{\"name\": NAME, \"arguments\": {…}}\n</tool_call>";
}

}  // namespace jerboa::server
