#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include <jerboa/transform/cleanup.h>

#include "transform/rewrite.h"

namespace jerboa {
namespace {

std::size_t index(int id) { return static_cast<std::size_t>(id); }

// The identity of a computation, as bytes: equal for two nodes exactly if they compute the same.
class NodeKey {
 public:
  NodeKey(const Node& node, const std::vector<TensorId>& inputs) {
    add(node.op);
    add(node.recompute);
    add(inputs);
    std::visit([&](const auto& attrs) { attrs.for_each_field([&](const char*, const auto& field) { add(field); }); },
               node.attrs);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add(const Dim& dim) {
    add(dim.is_constant());
    if (dim.is_constant()) return add(dim.value());
    const std::string text = dim.str();
    add(text.size());
    bytes_ += text;
  }
  template <class T>
  void add(const std::vector<T>& list) {
    add(list.size());
    for (const T& item : list) add(item);
  }

  std::string bytes_;
};

// For each tensor, the first one that is computed in the same way; itself if there is none before it.
std::vector<TensorId> find_common(const Graph& graph) {
  std::vector<TensorId> first(graph.tensors.size());
  std::iota(first.begin(), first.end(), 0);
  std::unordered_map<std::string, const Node*> known;
  known.reserve(graph.nodes.size());
  std::vector<TensorId> inputs;
  for (const Node& node : graph.nodes) {
    if (is_stored_leaf(node.op)) continue;
    inputs.clear();
    for (const TensorId input : node.inputs) inputs.push_back(input == no_tensor ? no_tensor : first[index(input)]);
    const auto [found, fresh] = known.emplace(NodeKey(node, inputs).take(), &node);
    for (std::size_t i = 0; !fresh && i < node.outputs.size(); ++i)
      first[index(node.outputs[i])] = found->second->outputs[i];
  }
  return first;
}

// Which nodes an output, a capture or an update needs, if each tensor is replaced by its first.
std::vector<bool> find_needed(const Graph& graph, const std::vector<TensorId>& first) {
  std::vector<bool> needed(graph.tensors.size(), false);
  const auto need = [&](TensorId id) { needed[index(first[index(id)])] = true; };
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
    for (const TensorId output : node.outputs) wanted |= needed[index(output)];
    keep[i] = wanted;
    if (!wanted) continue;
    for (const TensorId input : node.inputs)
      if (input != no_tensor) need(input);
  }
  return keep;
}

// The nodes to keep, with each tensor replaced by its first.
Graph rebuilt(Graph graph, const std::vector<TensorId>& first, const std::vector<bool>& keep) {
  if (std::find(keep.begin(), keep.end(), false) == keep.end()) return graph;
  Graph result;
  detail::GraphRewriter rewriter(graph, result);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (keep[i]) {
      rewriter.copy(node);
      continue;
    }
    std::vector<TensorId> instead;
    for (const TensorId output : node.outputs)
      instead.push_back(first[index(output)] == output ? no_tensor : rewriter.at(first[index(output)]));
    rewriter.replace(node, instead, result.tensors.size());
  }
  rewriter.finish();
  return result;
}

}  // namespace

Graph merge_common_nodes(Graph graph) {
  const auto first = find_common(graph);
  std::vector<bool> keep;
  for (const Node& node : graph.nodes) keep.push_back(first[index(node.outputs[0])] == node.outputs[0]);
  return rebuilt(std::move(graph), first, keep);
}

Graph remove_dead_nodes(Graph graph) {
  std::vector<TensorId> first(graph.tensors.size());
  std::iota(first.begin(), first.end(), 0);
  const auto keep = find_needed(graph, first);
  return rebuilt(std::move(graph), first, keep);
}

Graph clean_up(Graph graph) {
  const auto first = find_common(graph);
  const auto keep = find_needed(graph, first);
  return rebuilt(std::move(graph), first, keep);
}

Graph recompute_activations(Graph graph) {
  std::vector<std::vector<NodeId>> uses(graph.tensors.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const TensorId input : graph.nodes[i].inputs)
      if (input != no_tensor) uses[index(input)].push_back(static_cast<NodeId>(i));
  const auto node_at = [&](NodeId id) -> const Node& { return graph.nodes[index(id)]; };
  const auto uses_of = [&](NodeId id) -> const std::vector<NodeId>& { return uses[index(node_at(id).outputs[0])]; };
  // The conversion that is the only reader of a node's result, or the node itself: mixed precision keeps only the
  // former.
  const auto kept_as = [&](NodeId id) {
    return uses_of(id).size() == 1 && node_at(uses_of(id)[0]).op == Op::cast ? uses_of(id)[0] : id;
  };
  // The late use before which a node is recomputed.
  const auto late_use = [&](NodeId id) {
    if (!has(node_at(id).op, Trait::Recomputable)) return NodeId{-1};
    const auto& node_uses = uses_of(kept_as(id));
    const auto& operand = uses[index(node_at(id).inputs[0])];
    constexpr NodeId long_after = 16;
    for (std::size_t i = 1; i < node_uses.size(); ++i)
      if (node_uses[i] > node_uses[i - 1] + long_after && node_uses[i - 1] < id + long_after &&
          operand.back() > node_uses[i] - long_after)
        return node_uses[i];
    return NodeId{-1};
  };
  std::map<NodeId, std::vector<NodeId>> again;  // by the use before which the node is recomputed
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id)
    if (const NodeId use = late_use(id); use >= 0) {
      again[use].push_back(id);
      if (kept_as(id) != id) again[use].push_back(kept_as(id));
    }
  if (again.empty()) return graph;
  Graph result;
  detail::GraphRewriter rewriter(graph, result);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (const auto here = again.find(id); here != again.end())
      for (const NodeId first : here->second) {
        Node copy = graph.nodes[index(first)];
        copy.recompute = true;
        rewriter.copy(copy);
      }
    rewriter.copy(graph.nodes[index(id)]);
  }
  rewriter.finish();
  return result;
}

}  // namespace jerboa
