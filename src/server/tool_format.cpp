#include "server/tool_format.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "server/api_error.h"

namespace jerboa::server {
namespace {

// In the order in which they are looked for: templates may mention the marks of a format further down.
const std::array<ToolFormat, 4>& formats() {
  static const std::array<ToolFormat, 4> all = {{
      {"harmony", {"<|channel|>"}, CallSyntax::channels, "", "", "arguments", true},
      {"mistral", {"[TOOL_CALLS]"}, CallSyntax::list, "[TOOL_CALLS]", "", "arguments", true},
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

// References in a tool's schema point into that schema, wherever it is put.
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
  const bool is_named = format.syntax == CallSyntax::channels || names_follow_marks;
  if (is_named) {
    if (tools.size() != 1)
      throw ApiError(400, "tool_choice \"required\" needs a single tool with this model; name the one to call",
                     "tool_choice");
    const std::string opening =
        format.syntax == CallSyntax::channels
            ? fmt::format("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>", tools[0].name)
            : fmt::format("{}{}[ARGS]", format.open, tools[0].name);
    return {opening, tools[0].parameters};
  }
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
  if (is_list)
    return {std::string(format.open),
            {{"type", "array"}, {"minItems", 1}, {"maxItems", parallel ? 8 : 1}, {"items", one}}};
  return {format.syntax == CallSyntax::bare ? "" : std::string(format.open) + "\n", one};
}

std::string describe_tools(const Json& tools_json) {
  std::string out = "You may call functions to answer the user. These are their signatures, one per line:\n<tools>\n";
  for (const Json& tool : tools_json) out += dump(tool) + "\n";
  return out +
         "</tools>\nTo call one, answer with a JSON object of its name and arguments inside of tool_call tags:\n"
         "<tool_call>\n{\"name\": NAME, \"arguments\": {…}}\n</tool_call>";
}

}  // namespace jerboa::server
