#include <fmt/format.h>

#include <jerboa/ir/graph.h>

namespace jerboa {
namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string to_dot(const Graph& graph) {
  std::string text = "digraph jerboa {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n";
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const TensorInfo& out = graph.tensor(node.outputs.front());
    const bool leaf = out.storage != Storage::activation;
    text += fmt::format("  n{} [label=\"{}\\n{}\\n{}\"{}];\n", i, escaped(out.name), name(node.op),
                        escaped(to_string(out.type)), leaf ? ", style=filled, fillcolor=lightgrey" : "");
    for (const TensorId input : node.inputs)
      if (input != no_tensor) text += fmt::format("  n{} -> n{};\n", graph.tensor(input).producer, i);
  }
  for (const auto& [target, value] : graph.updates)
    text += fmt::format("  n{} -> n{} [style=dashed, constraint=false];\n", graph.tensor(value).producer,
                        graph.tensor(target).producer);
  return text + "}\n";
}

}  // namespace jerboa
