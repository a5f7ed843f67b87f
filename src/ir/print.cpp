#include <algorithm>
#include <fmt/format.h>

#include <jerboa/ir/graph.h>

namespace jerboa {
namespace {

std::string names_of(const Graph& graph, const std::vector<TensorId>& ids) {
  std::string text;
  for (const TensorId id : ids) {
    if (!text.empty()) text += ", ";
    text += id == no_tensor ? "-" : graph.tensor(id).name;
  }
  return text;
}

}  // namespace

std::string print(const Graph& graph) {
  std::size_t width = 0;
  for (const Node& node : graph.nodes) width = std::max(width, names_of(graph, node.outputs).size());
  width = std::min<std::size_t>(width, 40);
  std::string text;
  for (const auto& [symbol, bound] : graph.symbols()) text += fmt::format("symbol {} <= {}\n", symbol, bound);
  for (const Node& node : graph.nodes) {
    const std::string attrs = attrs_to_json(node.attrs, false);
    text += fmt::format("{:<{}}  {}", names_of(graph, node.outputs), width, name(node.op));
    if (!node.inputs.empty()) text += fmt::format(" [{}]", names_of(graph, node.inputs));
    if (attrs != "{}") text += " " + attrs;
    text += " ->";
    for (const TensorId id : node.outputs) text += " " + to_string(graph.type(id));
    if (!node.site.empty()) text += fmt::format("  ({})", node.site);
    text += '\n';
  }
  for (const auto& [name, tensor] : graph.outputs)
    text += fmt::format("output {} = {}\n", name, graph.tensor(tensor).name);
  for (const auto& [name, tensor] : graph.captures)
    text += fmt::format("capture {} = {}\n", name, graph.tensor(tensor).name);
  for (const auto& [target, value] : graph.updates)
    text += fmt::format("update {} <- {}\n", graph.tensor(target).name, graph.tensor(value).name);
  return text;
}

}  // namespace jerboa
