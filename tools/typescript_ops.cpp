#include "typescript_ops.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa {
namespace {

// Ops with several results, or with arguments other than operands and attributes, are written in
// web/src/graph/functions.ts.
constexpr auto by_hand =
    std::to_array<std::string_view>({"arange", "attention", "attention_weights", "cummax", "geglu", "pow", "random",
                                     "rms_norm", "split", "top_k", "causal_conv1d", "linear_attention"});
// Ops that only the compiler adds to a step.
constexpr auto of_the_compiler = std::to_array<std::string_view>({"adam_update", "sgd_update", "cache_append"});

bool is_generated(const OpInfo& row) {
  const auto is_in = [&](const auto& list) { return std::find(list.begin(), list.end(), row.name) != list.end(); };
  return row.lowering != Lowering::Leaf && !row.name.ends_with("_grad") && !is_in(by_hand) && !is_in(of_the_compiler);
}

std::string camel_case(std::string_view name) {
  std::string text;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '_')
      text += static_cast<char>(std::toupper(static_cast<unsigned char>(name[++i])));
    else
      text += name[i];
  }
  return text;
}

struct Field {
  std::string name, type, default_value;
  bool is_needed = false;  // its default stands for nothing that a user would mean
};

template <class T>
std::string type_of(const T&) {
  if constexpr (std::is_same_v<T, bool>)
    return "boolean";
  else if constexpr (std::is_arithmetic_v<T>)
    return "number";
  else if constexpr (std::is_same_v<T, DType>)
    return "DType";
  else if constexpr (std::is_same_v<T, Dim>)
    return "Dim";
  else if constexpr (std::is_same_v<T, Shape>)
    return "readonly Dim[]";
  else if constexpr (std::is_same_v<T, std::vector<int>>)
    return "readonly number[]";
  else
    return fmt::format("\"{}\"", fmt::join(enum_names(T{}), "\" | \""));
}

std::vector<Field> fields_of(const Attrs& attrs) {
  const auto defaults = nlohmann::ordered_json::parse(attrs_to_json(attrs));
  std::vector<Field> fields;
  std::visit(
      [&](const auto& plain) {
        plain.for_each_field([&](const char* name, const auto& field) {
          using T = std::remove_cvref_t<decltype(field)>;
          Field row{camel_case(name), type_of(field), defaults.at(name).dump()};
          row.is_needed = std::is_same_v<T, Dim> || std::is_same_v<T, DType> || row.default_value == "[]";
          fields.push_back(std::move(row));
        });
      },
      attrs);
  return fields;
}

std::string interface(const std::string& name, const std::vector<Field>& fields) {
  std::string text = fmt::format("export interface {} {{\n", name);
  for (const Field& field : fields) {
    if (field.default_value != "[]") text += fmt::format("  /** By default {}. */\n", field.default_value);
    text += fmt::format("  readonly {}?: {} | undefined;\n", field.name, field.type);
  }
  return text + "}\n\n";
}

struct Function {
  std::vector<std::string> parameters, operands;
  std::string options;
};

std::string_view operand_type(const OperandInfo& operand) {
  return operand.variadic ? "readonly Operand[]" : "Operand";
}

Function function_of(const OpInfo& row, const std::vector<Field>& fields) {
  Function function;
  std::vector<std::string> optional;
  for (const OperandInfo& operand : row.operands) {
    const std::string name = camel_case(operand.name);
    if (operand.optional) {
      optional.push_back(name);
      function.operands.push_back("options." + name);
      continue;
    }
    function.parameters.push_back(fmt::format("{}: {}", name, operand_type(operand)));
    function.operands.push_back(operand.variadic ? "..." + name : name);
  }
  if (fields.size() == 1 && optional.empty()) {
    const Field& field = fields.front();
    function.parameters.push_back(field.is_needed
                                      ? fmt::format("{}: {}", field.name, field.type)
                                      : fmt::format("{}: {} = {}", field.name, field.type, field.default_value));
    function.options = fmt::format(", {{ {} }}", field.name);
  } else if (!fields.empty() || !optional.empty()) {
    std::string type(fields.empty() ? "" : row.attrs_name);
    for (const std::string& name : optional)
      type += fmt::format("{}{{ readonly {}?: Operand | undefined }}", type.empty() ? "" : " & ", name);
    function.parameters.push_back(fmt::format("options: {} = {{}}", type));
    std::string rest = "options";
    if (!optional.empty()) rest = fmt::format("without(options, [\"{}\"])", fmt::join(optional, "\", \""));
    function.options = ", " + rest;
  }
  return function;
}

}  // namespace

std::string typescript_ops() {
  std::string interfaces, functions;
  std::map<std::string_view, bool> written;
  bool leaves_out = false;
  for (const OpInfo& row : op_table()) {
    if (!is_generated(row)) continue;
    const std::vector<Field> fields = fields_of(row.default_attrs);
    const Function function = function_of(row, fields);
    const bool named = function.options.find("options") != std::string::npos && !fields.empty();
    if (named && !std::exchange(written[row.attrs_name], true))
      interfaces += interface(std::string(row.attrs_name), fields);
    leaves_out |= function.options.starts_with(", without");
    functions += fmt::format("/** {} */\nexport function {}({}): Tensor {{\n  return applied(\"{}\", [{}]{});\n}}\n\n",
                             row.doc, camel_case(row.name), fmt::join(function.parameters, ", "), row.name,
                             fmt::join(function.operands, ", "), function.options);
  }
  functions.pop_back();
  return fmt::format(
      "// Generated from include/jerboa/ir/ops.def: see docs/development.md.\n\n"
      "import type {{ DType }} from \"../tensor.js\";\n"
      "import {{ type Dim, type Operand, type Tensor, applied{} }} from \"./tracing.js\";\n\n{}{}",
      leaves_out ? ", without" : "", interfaces, functions);
}

}  // namespace jerboa
