#include <jerboa/transform/cleanup.h>

#include <map>

#include <fmt/format.h>

#include "transform/rewrite.h"

namespace jerboa {

Graph merge_common_nodes(const Graph& graph) {
  Graph result;
  detail::GraphRewriter rewriter(graph, result);
  std::map<std::string, std::vector<TensorId>> known;
  for (const Node& node : graph.nodes) {
    const bool leaf = info(node.op).lowering == Lowering::Leaf && node.op != Op::const_scalar;
    if (leaf) {
      rewriter.copy(node);
      continue;
    }
    const auto inputs = rewriter.at(node.inputs);
    const std::string key = fmt::format("{} {} {} {}", name(node.op), fmt::join(inputs, ","), attrs_to_json(node.attrs), node.recompute);
    const auto found = known.find(key);
    if (found != known.end()) {
      rewriter.replace(node, found->second, result.tensors.size());
      continue;
    }
    rewriter.copy(node);
    known.emplace(key, result.nodes.back().outputs);
  }
  rewriter.finish();
  return result;
}

Graph remove_dead_nodes(const Graph& graph) {
  std::vector<bool> needed(graph.tensors.size(), false);
  const auto need = [&](TensorId id) { needed[static_cast<std::size_t>(id)] = true; };
  for (const NamedTensor& output : graph.outputs) need(output.tensor);
  for (const NamedTensor& capture : graph.captures) need(capture.tensor);
  for (const Update& update : graph.updates) {
    need(update.target);
    need(update.value);
  }
  std::vector<bool> keep(graph.nodes.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const Storage storage = graph.tensor(node.outputs[0]).storage;
    bool wanted = storage == Storage::input || storage == Storage::param || storage == Storage::state;
    for (const TensorId output : node.outputs) wanted |= needed[static_cast<std::size_t>(output)];
    keep[i] = wanted;
    if (!wanted) continue;
    for (const TensorId input : node.inputs)
      if (input != no_tensor) need(input);
  }
  Graph result;
  detail::GraphRewriter rewriter(graph, result);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (keep[i]) rewriter.copy(graph.nodes[i]);
  rewriter.finish();
  return result;
}

}  // namespace jerboa
