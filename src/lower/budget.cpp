#include "lower/budget.h"

#include <algorithm>
#include <set>

#include "lower/fuse.h"
#include "lower/target.h"

namespace jerboa::detail {
namespace {

std::size_t index(int id) { return static_cast<std::size_t>(id); }

}  // namespace

Budget::Budget(const Graph& graph, const Target& target, const std::vector<Layout>& layouts)
    : graph_(graph),
      target_(target),
      layouts_(layouts),
      kept_(graph.tensors.size(), false),
      target_of_(graph.tensors.size(), no_tensor) {
  const auto keep = [&](TensorId id) { kept_[index(layouts[index(id)].root)] = true; };
  for (const NamedTensor& output : graph.outputs) keep(output.tensor);
  for (const NamedTensor& capture : graph.captures) keep(capture.tensor);
  for (const Update& update : graph.updates) {
    keep(update.value);
    target_of_[index(update.value)] = update.target;
  }
}

bool Budget::is_limited() const { return target_.max_bindings < Target().max_bindings; }

bool Budget::is_fusable(NodeId id) const {
  const Op op = graph_.nodes[index(id)].op;
  return is_elementwise(op) || is_reduction(op);
}

// The operands of inlined nodes stand before these nodes, so their reads are known.
std::vector<TensorId> Budget::find_reads(const Node& node, const std::vector<bool>& inlined) const {
  std::set<TensorId> found;
  for (const TensorId input : node.inputs) {
    if (input == no_tensor) continue;
    const TensorId root = layouts_[index(input)].root;
    const NodeId from = graph_.tensor(root).producer;
    if (inlined[index(from)])
      found.insert(reads_[index(from)].begin(), reads_[index(from)].end());
    else
      found.insert(root);
  }
  return {found.begin(), found.end()};
}

void Budget::settle(std::vector<bool>& inlined) {
  if (!is_limited()) return;
  const auto needed = [&](NodeId id) {
    const Node& node = graph_.nodes[index(id)];
    std::vector<TensorId> tensors = reads_[index(id)];
    tensors.insert(tensors.end(), node.outputs.begin(), node.outputs.end());
    return bindings(tensors);
  };
  // The inlined operand that brings the most, or -1.
  const auto heaviest_operand = [&](const Node& node) {
    NodeId heaviest = -1;
    std::size_t most = 0;
    for (const TensorId input : node.inputs) {
      if (input == no_tensor) continue;
      const NodeId from = graph_.tensor(layouts_[index(input)].root).producer;
      if (!inlined[index(from)] || reads_[index(from)].size() <= most) continue;
      heaviest = from;
      most = reads_[index(from)].size();
    }
    return heaviest;
  };
  for (bool changed = true; changed;) {
    changed = false;
    reads_.assign(graph_.nodes.size(), {});
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      const Node& node = graph_.nodes[index(id)];
      reads_[index(id)] = find_reads(node, inlined);
      if (!is_fusable(id)) continue;
      while (!allows(needed(id))) {
        const NodeId heaviest = heaviest_operand(node);
        if (heaviest < 0) break;
        inlined[index(heaviest)] = false;
        changed = true;
        reads_[index(id)] = find_reads(node, inlined);
      }
    }
  }
  users_.assign(graph_.tensors.size(), {});
  for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id)
    if (!inlined[index(id)] && !is_view(graph_.nodes[index(id)].op))
      for (const TensorId read : reads_[index(id)]) users_[index(read)].push_back(id);
}

int Budget::bindings(const std::vector<TensorId>& tensors) const {
  int count = 0;
  for (const TensorId id : tensors) count += binding_count(bytes_of(graph_.type(id)), target_);
  return count;
}

bool Budget::allows(NodeId joining, const std::vector<NodeId>& group, const std::vector<int>& group_of,
                    bool strict) const {
  if (!is_limited()) return true;
  const int number = group_of[index(group.front())];
  const auto is_inside = [&](NodeId id) { return id == joining || group_of[index(id)] == number; };
  const auto is_stored = [&](TensorId id) {
    return kept_[index(id)] || std::any_of(users_[index(id)].begin(), users_[index(id)].end(), [&](NodeId user) {
             return !is_inside(user) && (strict || group_of[index(user)] >= 0 || !is_fusable(user));
           });
  };
  std::set<TensorId> bound;
  const auto bind_node = [&](NodeId id) {
    for (const TensorId read : reads_[index(id)])
      if (!is_inside(graph_.tensor(read).producer)) bound.insert(read);
    for (const TensorId output : graph_.nodes[index(id)].outputs) {
      if (!is_stored(output)) continue;
      const TensorId target = target_of_[index(output)];
      bound.insert(strict || target == no_tensor ? output : target);
    }
  };
  for (const NodeId id : group) bind_node(id);
  bind_node(joining);
  return allows(bindings({bound.begin(), bound.end()}));
}

}  // namespace jerboa::detail
