#include "lower/budget.h"

#include <algorithm>

#include "lower/fuse.h"
#include "lower/index.h"
#include "lower/target.h"

namespace jerboa::detail {
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
  for (const TensorInfo& tensor : graph.tensors) bindings_.push_back(binding_count(bytes_of(tensor.type), target));
}

bool Budget::is_limited() const { return target_.max_bindings < Target().max_bindings; }

bool Budget::is_fusable(NodeId id) const {
  const Op op = graph_.nodes[index(id)].op;
  return is_elementwise(op) || is_reduction(op);
}

// The operands of inlined nodes precede them, so their reads are known.
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
  // The inlined operand that adds the most bindings, or -1.
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
  all_users_.assign(graph_.tensors.size(), {});
  for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id)
    if (!inlined[index(id)] && !is_view(graph_.nodes[index(id)].op))
      for (const TensorId read : reads_[index(id)]) {
        Users& users = all_users_[index(read)];
        ++(is_fusable(id) ? users.unplaced : users.unplaced_unfusable);
      }
}

int Budget::bindings(const std::vector<TensorId>& tensors) const {
  int count = 0;
  for (const TensorId id : tensors) count += bindings_[index(id)];
  return count;
}

int Budget::group_of_producer(TensorId id) const { return group_of_[index(graph_.tensor(id).producer)]; }

bool Budget::is_stored(TensorId id, const Users& users, bool strict) const {
  return kept_[index(id)] || users.elsewhere > 0 || users.unplaced_unfusable > 0 || (strict && users.unplaced > 0);
}

void Budget::refresh_stored(TensorId id) {
  const int group = group_of_producer(id);
  if (group < 0) return;
  Bound& bound = groups_[index(group)];
  if (is_stored(id, users_[index(id)], bound.strict))
    bound.stored.insert(id);
  else
    bound.stored.erase(id);
}

TensorId Budget::binding_of(TensorId result, bool strict) const {
  const TensorId target = target_of_[index(result)];
  return strict || target == no_tensor ? result : target;
}

void Budget::clear() {
  group_of_.assign(graph_.nodes.size(), -1);
  users_ = all_users_;
  groups_.clear();
}

void Budget::add_group(bool strict) {
  if (is_limited()) groups_.push_back({strict, {}, {}});
}

bool Budget::allows_to_join(NodeId joining, int group) const {
  if (!is_limited()) return true;
  const Bound& bound_group = groups_[index(group)];
  const std::vector<TensorId>& reads = reads_[index(joining)];
  std::set<TensorId> bound;
  for (const auto& [read, count] : bound_group.reads) bound.insert(read);
  for (const TensorId read : reads)
    if (group_of_producer(read) != group) bound.insert(read);
  for (const TensorId result : bound_group.stored) {
    Users users = users_[index(result)];
    users.unplaced -= static_cast<int>(std::count(reads.begin(), reads.end(), result));
    if (is_stored(result, users, bound_group.strict)) bound.insert(binding_of(result, bound_group.strict));
  }
  for (const TensorId result : graph_.nodes[index(joining)].outputs)
    if (is_stored(result, users_[index(result)], bound_group.strict))
      bound.insert(binding_of(result, bound_group.strict));
  return allows(bindings({bound.begin(), bound.end()}));
}

void Budget::place(NodeId node, int group) {
  if (!is_limited()) return;
  group_of_[index(node)] = group;
  for (const TensorId read : reads_[index(node)]) {
    Users& users = users_[index(read)];
    --(is_fusable(node) ? users.unplaced : users.unplaced_unfusable);
    if (group_of_producer(read) != group) {
      ++users.elsewhere;
      ++groups_[index(group)].reads[read];
    }
    refresh_stored(read);
  }
  for (const TensorId result : graph_.nodes[index(node)].outputs) refresh_stored(result);
}

bool Budget::allows_to_merge(int group, int into) const {
  if (!is_limited()) return true;
  const Bound &from = groups_[index(group)], &target = groups_[index(into)];
  std::set<TensorId> bound;
  for (const auto& [read, count] : target.reads) bound.insert(read);
  for (const auto& [read, count] : from.reads)
    if (group_of_producer(read) != into) bound.insert(read);
  for (const TensorId result : from.stored) bound.insert(binding_of(result, target.strict));
  for (const TensorId result : target.stored) {
    Users users = users_[index(result)];
    if (const auto read = from.reads.find(result); read != from.reads.end()) users.elsewhere -= read->second;
    if (is_stored(result, users, target.strict)) bound.insert(binding_of(result, target.strict));
  }
  return allows(bindings({bound.begin(), bound.end()}));
}

void Budget::merge(int group, const std::vector<NodeId>& nodes, int into) {
  if (!is_limited()) return;
  for (const NodeId node : nodes) group_of_[index(node)] = into;
  Bound& target = groups_[index(into)];
  const Bound from = std::move(groups_[index(group)]);
  for (const auto& [read, count] : from.reads) {
    if (group_of_producer(read) == into) {
      users_[index(read)].elsewhere -= count;
      refresh_stored(read);
    } else {
      target.reads[read] += count;
    }
  }
  for (const TensorId result : from.stored) refresh_stored(result);
}

}  // namespace jerboa::detail
