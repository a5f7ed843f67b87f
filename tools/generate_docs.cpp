// Writes docs/ops.md, docs/support.md and web/src/graph/ops.ts from the op table and the sample cases of the tests,
// docs/families.md from the table of families, and web/src/software_drivers.ts, or checks that they are current.
//
//     generate_docs SOURCE           writes them
//     generate_docs SOURCE --check   exits 1 where one differs

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include <jerboa/base/error.h>
#include <jerboa/wgsl/software_drivers.h>

#include "families_page.h"
#include "ops/case.h"
#include "ops/gradient_check.h"
#include "typescript_ops.h"

namespace jerboa {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr const char* generated = "<!-- Generated: see docs/development.md. -->\n\n";

// The parts that only the source of ops.def contains: the semantics above the table, and the titles of its sections.
struct TableText {
  std::string semantics;                           // as a Markdown list
  std::map<std::string, std::string> title_above;  // by the first op of a section
};

TableText read_table_text(const std::filesystem::path& source) {
  std::istringstream lines(read(source / "include/jerboa/ir/ops.def"));
  TableText text;
  std::string line, title;
  bool in_semantics = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("// ")) {
      const std::string comment = line.substr(3);
      if (in_semantics) text.semantics += comment + "\n";
      in_semantics |= comment == "Semantics";
      title = comment;
    } else if (line.starts_with("OP(")) {
      if (!title.empty()) text.title_above[line.substr(3, line.find(',') - 3)] = title;
      title.clear();
    } else {
      in_semantics = false;
    }
  }
  return text;
}

// Escapes the contents of a table cell.
std::string cell(std::string text) {
  for (auto at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

std::string operands(const OpInfo& row) {
  std::vector<std::string> parts;
  for (const OperandInfo& operand : row.operands) {
    std::string text = "`" + operand.name + "`";
    if (operand.kind == OperandInfo::Kind::integer) text += " int";
    if (operand.kind == OperandInfo::Kind::boolean) text += " bool";
    if (operand.optional) text += "?";
    if (operand.variadic) text += " …";
    parts.push_back(text);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string attributes(const OpInfo& row) {
  const auto json = nlohmann::ordered_json::parse(attrs_to_json(row.default_attrs));
  std::vector<std::string> parts;
  for (const auto& item : json.items()) parts.push_back(fmt::format("`{}` = {}", item.key(), item.value().dump()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string gradient(const OpInfo& row) {
  switch (row.gradient) {
    case Gradient::Rule: return "rule";
    case Gradient::Decompose: return "by decomposition";
    case Gradient::Zero: return "zero";
    case Gradient::None: return "none";
  }
  return {};
}

// The types of the first sample case: "f32[5, 8], f32[8, 3] → f32[5, 3]".
std::string example(const OpInfo& row) {
  if (row.lowering == Lowering::Leaf) return {};
  std::vector<std::string> before, after;
  std::map<std::string, Value> inputs;
  trace([&] {
    const auto instance = test::build(row.op, test::cases_of(row.op).front(), inputs);
    const auto type = [](const Tensor& tensor) { return to_string(TensorType{tensor.dtype(), tensor.shape()}); };
    for (const Tensor& tensor : instance.operands) before.push_back(tensor ? type(tensor) : "–");
    for (const Tensor& tensor : instance.outputs) after.push_back(type(tensor));
  });
  return fmt::format("{}{}→ {}", fmt::join(before, ", "), before.empty() ? "" : " ", fmt::join(after, ", "));
}

std::string ops_page(const std::filesystem::path& source) {
  const TableText text = read_table_text(source);
  std::string page = "# Ops\n\n" + std::string(generated) +
                     "Every op of the graph, from the one table in `include/jerboa/ir/ops.def`. Operands are floats "
                     "unless they say int or bool; `?` marks one that may be absent. Each op is a function of the same "
                     "name in `<jerboa/ops/ops.h>`. The example gives the types of its operands and results; the "
                     "lowering is the kind of kernel that it becomes, with what else the compiler knows about it. "
                     "[support.md](support.md) lists what runs where.\n\n## Semantics\n\n" +
                     text.semantics;
  for (const OpInfo& row : op_table()) {
    if (const auto title = text.title_above.find(std::string(row.name)); title != text.title_above.end())
      page += fmt::format(
          "\n## {}\n\n| op | | operands | attributes | example | gradient | lowering | traits "
          "|\n|---|---|---|---|---|---|---|---|\n",
          title->second);
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |\n", row.name, cell(std::string(row.doc)),
                        operands(row), cell(attributes(row)), example(row), gradient(row), name(row.lowering),
                        names(row.traits));
  }
  return page;
}

// Whether a gradient exists for all sample cases of an op that have something to differentiate: "yes", or why not.
std::string differentiable(const OpInfo& row, std::optional<test::Differentiated> (*order)(Op, const test::Case&)) {
  if (row.gradient == Gradient::Zero) return "zero";
  try {
    for (const test::Case& sample : test::cases_of(row.op)) order(row.op, sample);
  } catch (const GraphError& error) {
    const std::string message = error.what();
    const std::string op = message.substr(0, message.find(':'));
    return op == row.name ? "no" : fmt::format("no: `{}`", op);
  }
  return "yes";
}

std::string forward(const OpInfo& row) {
  for (const test::Case& sample : test::cases_of(row.op)) {
    std::map<std::string, Value> inputs;
    std::vector<TensorId> keep;
    const Graph graph = trace([&] {
      for (const Tensor& out : test::build(row.op, sample, inputs).outputs) keep.push_back(out.id());
    });
    test::run(graph, keep, inputs, ReferencePrecision::f32);
  }
  return "yes";
}

// How the CPU engine and WebGPU compute an op; a row without a kernel for either does not compile.
std::string on_engines(const OpInfo& row) {
  switch (row.lowering) {
    case Lowering::View: return "a view";
    case Lowering::Loop:
    case Lowering::Expand: return "fused";
    case Lowering::Reduce: return "fused, or a reduction";
    case Lowering::Product: return "separate kernel, consumers fused into it";
    case Lowering::Decompose: return "by decomposition";
    default: return "separate kernel";
  }
}

std::string support_page() {
  std::string page =
      "# What is supported\n\n" + std::string(generated) +
      "For each op of [ops.md](ops.md): its sample cases in `tests/ops/cases`, whether they run, whether they have a "
      "gradient and a gradient of that gradient, all checked against finite differences in f64, and how each engine "
      "computes "
      "it. Zero: the op is piecewise constant and passes nothing back. No: it is an error, which names the user's "
      "line; "
      "the op that prevents it is named if it is another.\n\n"
      "| op | cases | forward | gradient | gradient of gradient | reference | CPU and WebGPU "
      "|\n|---|---|---|---|---|---|---|\n";
  const auto first = [](Op op, const test::Case& sample) { return test::first_order(op, sample); };
  for (const OpInfo& row : op_table()) {
    if (row.lowering == Lowering::Leaf) continue;
    const std::string reference = row.lowering == Lowering::Decompose ? "by decomposition" : "direct";
    page +=
        fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", row.name, test::cases_of(row.op).size(), forward(row),
                    differentiable(row, first), differentiable(row, test::second_order), reference, on_engines(row));
  }
  return page;
}

// Source for pages that check the device's name before they load the compiler.
std::string typescript_software_drivers() {
  return fmt::format(
      "// Generated from src/wgsl/webgpu_target.cpp: cmake --build --preset release --target docs\n\n"
      "/** What software drivers call themselves, in lower case. */\n"
      "export const softwareDriverNames: readonly string[] = [\"{}\"];\n",
      fmt::join(software_driver_names(), "\", \""));
}

int main_with(const std::filesystem::path& source, bool check) {
  int stale = 0;
  const auto handle = [&](const std::string& name, const std::string& text) {
    const auto path = source / name;
    if (read(path) == text) return;
    if (!check) {
      std::ofstream(path, std::ios::binary) << text;
      return;
    }
    std::cerr << name << " is not current; run: cmake --build --preset release --target docs\n";
    ++stale;
  };
  handle("docs/ops.md", ops_page(source));
  handle("docs/support.md", support_page());
  handle("docs/families.md", families_page(source));
  handle("web/src/graph/ops.ts", typescript_ops());
  handle("web/src/software_drivers.ts", typescript_software_drivers());
  return stale == 0 ? 0 : 1;
}

}  // namespace
}  // namespace jerboa

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool check = arguments.size() == 2 && arguments[1] == "--check";
  if (arguments.empty() || (arguments.size() == 2 && !check) || arguments.size() > 2) {
    std::cerr << "usage: generate_docs SOURCE [--check]\n";
    return 2;
  }
  try {
    return jerboa::main_with(arguments[0], check);
  } catch (const std::exception& error) {
    std::cerr << "generate_docs: " << error.what() << "\n";
    return 1;
  }
}
