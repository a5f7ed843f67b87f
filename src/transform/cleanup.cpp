#include <fmt/format.h>
#include <map>
#include <unordered_map>

#include <jerboa/transform/cleanup.h>

#include "transform/rewrite.h"

namespace jerboa {

Graph merge_common_nodes(const Graph& graph) {
  Graph result;
  detail::GraphRewriter rewriter(graph, result);
  std::unordered_map<std::string, std::vector<TensorId>> known;
  for (const Node& node : graph.nodes) {
    if (is_stored_leaf(node.op)) {
      rewriter.copy(node);
      continue;
    }
    const auto inputs = rewriter.at(node.inputs);
    const bool plain = std::holds_alternative<NoAttrs>(node.attrs);
    const std::string key = fmt::format("{} {} {} {}", name(node.op), fmt::join(inputs, ","),
                                        plain ? "" : attrs_to_json(node.attrs), node.recompute);
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

Graph recompute_activations(const Graph& graph) {
  std::vector<std::vector<NodeId>> uses(graph.tensors.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const TensorId input : graph.nodes[i].inputs)
      if (input != no_tensor) uses[static_cast<std::size_t>(input)].push_back(static_cast<NodeId>(i));
  // The late use before which a node is recomputed.
  const auto late_use = [&](NodeId id) {
    const Node& node = graph.nodes[static_cast<std::size_t>(id)];
    if (!has(node.op, Trait::Recomputable)) return NodeId{-1};
    const auto& node_uses = uses[static_cast<std::size_t>(node.outputs[0])];
    const auto& operand = uses[static_cast<std::size_t>(node.inputs[0])];
    constexpr NodeId long_after = 16;
    for (std::size_t i = 1; i < node_uses.size(); ++i)
      if (node_uses[i] > node_uses[i - 1] + long_after && node_uses[i - 1] < id + long_after &&
          operand.back() > node_uses[i] - long_after)
        return node_uses[i];
    return NodeId{-1};
  };
  std::map<NodeId, std::vector<NodeId>> again;  // by the use before which the node is recomputed
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id)
    if (const NodeId use = late_use(id); use >= 0) again[use].push_back(id);
  if (again.empty()) return graph;
  Graph result;
  detail::GraphRewriter rewriter(graph, result);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    for (const NodeId first : again[id]) {
      Node copy = graph.nodes[static_cast<std::size_t>(first)];
      copy.recompute = true;
      rewriter.copy(copy);
    }
    rewriter.copy(graph.nodes[static_cast<std::size_t>(id)]);
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
