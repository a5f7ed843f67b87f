#include "lower/fuse.h"

#include <algorithm>

#include <jerboa/ir/shapes.h>

#include "lower/budget.h"
#include "lower/group_needs.h"
#include "lower/group_order.h"
#include "lower/index.h"
#include "lower/inline.h"
#include "lower/pool_updates.h"

namespace jerboa::detail {

bool is_elementwise(Op op) { return info(op).lowering == Lowering::Loop || has(op, Trait::Computed); }

bool is_leaf(const Node& node) { return is_stored_leaf(node.op); }

bool is_product(Op op) { return info(op).lowering == Lowering::Product; }

bool is_reduction(Op op) { return info(op).lowering == Lowering::Reduce; }

Access identity_access(const Shape& shape) {
  Access access = identity_access(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == Dim(1)) access[i] = {};  // for a row's value: the domain's axis may be longer
  return access;
}

bool is_aligned(const Shape& shape, const Access& access) {
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!(shape[i] == Dim(1)) && !access[i].is_axis(static_cast<int>(i))) return false;
  return true;
}

std::vector<int> reduced_axes(const Graph& graph, const Node& node) {
  const int rank = static_cast<int>(graph.shape(node.inputs[0]).size());
  if (node.op == Op::argmax) return {axis_of(node.as<ArgmaxAttrs>().axis, rank)};
  if (node.op == Op::all_finite) return axes_of({}, rank);
  return axes_of(node.as<ReduceAttrs>().axes, rank);
}

bool looks_up(Op op, std::size_t operand) { return operand == 0 && has(op, Trait::LooksUp); }

namespace {

// Drivers take more than linear time to compile a kernel, and registers spill: no group grows beyond this.
constexpr std::size_t most_nodes = 512;

class Fuser {
 public:
  Fuser(const Graph& graph, const Target& target)
      : graph_(graph),
        target_(target),
        layouts_(layouts_of(graph)),
        budget_(graph, target, layouts_),
        inlined_(find_inlined(graph, target, layouts_)) {
    budget_.settle(inlined_);
    if (target.pool_updates && target.fuse) is_update_ = find_update_nodes(graph);
    is_update_.resize(graph.nodes.size(), false);
  }

  // Groups grow optimistically, assuming that later nodes will fit; groups for which that fails are rebuilt strictly.
  // This changes the boundaries of others, so after a few rounds all groups are strict.
  Fusion run() {
    constexpr int most_rounds = 4;
    for (int round = 1;; ++round) {
      all_strict_ = round > most_rounds;
      make_groups();
      if (!find_over_budget() || all_strict_) break;
    }
    sort_groups(result_);
    result_.layouts = std::move(layouts_);
    result_.inlined = std::move(inlined_);
    return std::move(result_);
  }

 private:
  void make_groups() {
    result_ = {};
    result_.group_of.assign(graph_.nodes.size(), -1);
    result_.in_memory.assign(graph_.tensors.size(), false);
    needs_.clear();
    budget_.clear();
    readers_.assign(graph_.tensors.size(), {});
    unaligned_.clear();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) place(id);
    merge_loops();
    decide_memory();
    choose_in_place();
  }

  const Node& node_at(NodeId id) const { return graph_.nodes[index(id)]; }
  NodeId producer(TensorId id) const { return graph_.tensor(id).producer; }

  // The tensor behind a chain of views.
  TensorId view_source(TensorId id) const { return layouts_[index(id)].root; }

  // The memory that an op on whole tensors reads for an operand: products compute some of theirs on the fly.
  TensorId memory_of(TensorId id) const {
    TensorId source = view_source(id);
    while (inlined_[index(producer(source))]) source = view_source(varying_operand(graph_, node_at(producer(source))));
    return source;
  }

  // Collects the groups whose results a node needs for an operand when it is read with this access; returns false if
  // `group` computes that operand but cannot supply it with this access. Chains of inlined nodes are short (inline.h),
  // so the recursion is shallow.
  bool collect(const Node& user, std::size_t operand, const Access& user_access, int group,
               std::set<int>& needs) const {
    TensorId id = user.inputs[operand];
    const NodeId source = producer(view_source(id));
    if (is_leaf(node_at(source))) return true;
    const int computed_in = result_.group_of[index(source)];
    const bool computed_here = group >= 0 && computed_in == group;
    if (!computed_here && !inlined_[index(source)]) {
      needs.insert(computed_in);
      return true;
    }
    Access access = operand_access(user, operand, user_access);
    for (; is_view(node_at(producer(id)).op); id = node_at(producer(id)).inputs[0]) {
      auto inner = view_operand_access(graph_, node_at(producer(id)), access);
      if (!inner) return false;
      access = std::move(*inner);
    }
    if (inlined_[index(source)]) return collect_operands(node_at(source), access, group, needs);
    return is_aligned(graph_.shape(id), access);
  }

  // The access of a node that is read with this access to one of its operands.
  Access operand_access(const Node& node, std::size_t operand, const Access& access) const {
    const Shape& shape = graph_.shape(node.outputs[0]);
    const Shape& operand_shape = graph_.shape(node.inputs[operand]);
    // A moved element is never the same element.
    if (has(node.op, Trait::Moves)) return Access(operand_shape.size(), AffineIndex{Dim(-1), {}});
    if (has(node.op, Trait::AddsAxis)) return Access(access.begin(), access.end() - 1);
    return is_reduction(node.op) ? access : broadcast_access(access, shape, operand_shape);
  }

  bool collect_operands(const Node& node, const Access& access, int group, std::set<int>& needs) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId input = node.inputs[i];
      if (input == no_tensor) continue;
      if (looks_up(node.op, i)) {
        const NodeId source = producer(view_source(input));
        if (is_leaf(node_at(source))) continue;
        if (result_.group_of[index(source)] == group) return false;
        needs.insert(result_.group_of[index(source)]);
      } else if (!collect(node, i, access, group, needs)) {
        return false;
      }
    }
    return true;
  }

  // The shape of the values that a group computes per element.
  const Shape& value_shape(const Group& group) const {
    return group.kind == KernelSpec::Kind::reduce ? graph_.shape(node_at(group.nodes.front()).outputs[0])
                                                  : group.domain;
  }

  // A value of this shape fits a group element by element, or row by row.
  bool fits(const Group& group, const Shape& shape) const {
    if (shape == value_shape(group)) return true;
    if (group.kind != KernelSpec::Kind::loop || group.row_axes == 0) return false;
    const std::size_t outer = group.domain.size() - static_cast<std::size_t>(group.row_axes);
    if (shape.size() != outer && shape.size() != group.domain.size()) return false;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (!(shape[i] == (i < outer ? group.domain[i] : Dim(1)))) return false;
    return true;
  }

  bool can_join(const Node& node, int number) const {
    const Group& group = result_.groups[index(number)];
    if (group.kind == KernelSpec::Kind::whole || group.nodes.size() >= most_nodes ||
        is_update_[index(producer(node.outputs[0]))] != holds_updates(group))
      return false;
    // A node recomputed to save memory must not join the group that computed it first.
    if (node.recompute && !group.recomputes) return false;
    if (is_reduction(node.op)) {
      if (group.kind != KernelSpec::Kind::loop || !reduces_rows(graph_, node)) return false;
      const Shape& shape = graph_.shape(node.inputs[0]);
      const int axes = static_cast<int>(reduced_axes(graph_, node).size());
      if (shape != group.domain) return false;
      if (group.row_axes != 0 && group.row_axes != axes) return false;
      if (group.row_axes == 0 && !group.whole_domain_only) return false;
    } else if (!fits(group, graph_.shape(node.outputs[0]))) {
      return false;
    }
    std::set<int> needs;
    return collect_operands(node, identity_access_of(node), number, needs) &&
           budget_.allows_to_join(producer(node.outputs[0]), number) && needs_.can_need(number, needs);
  }

  // A reduction is accessed by the elements it reads.
  Access identity_access_of(const Node& node) const {
    return identity_access(graph_.shape(is_reduction(node.op) ? node.inputs[0] : node.outputs[0]));
  }

  void place(NodeId id) {
    const Node& node = node_at(id);
    if (is_leaf(node) || is_view(node.op) || inlined_[index(id)]) return;
    const bool fusable = is_elementwise(node.op) || is_reduction(node.op);
    if (fusable && target_.fuse) {
      for (const int candidate : candidates(node)) {
        if (!can_join(node, candidate)) continue;
        join(id, candidate);
        return;
      }
      // Recomputed parts of one expression often have only their operands in common.
      constexpr int look_back = 8;
      const int last = static_cast<int>(result_.groups.size()) - 1;
      for (int group = last; node.recompute && group >= std::max(0, last - look_back); --group)
        if (can_join(node, group)) {
          join(id, group);
          return;
        }
    }
    start_group(id);
  }

  // The groups that compute operands of the node, latest first.
  std::set<int, std::greater<>> candidates(const Node& node) const {
    std::set<int, std::greater<>> found;
    std::set<int> needs;
    collect_operands(node, identity_access_of(node), -1, needs);
    for (const int group : needs) found.insert(group);
    return found;
  }

  void join(NodeId id, int number) {
    Group& group = result_.groups[index(number)];
    const Node& node = node_at(id);
    std::set<int> needs;
    collect_operands(node, identity_access_of(node), number, needs);
    needs_.add(number, needs);
    if (is_reduction(node.op)) group.row_axes = static_cast<int>(reduced_axes(graph_, node).size());
    put(id, number);
  }

  void put(NodeId id, int number) {
    Group& group = result_.groups[index(number)];
    group.nodes.push_back(id);
    group.recomputes |= node_at(id).recompute;
    group.whole_domain_only &= graph_.shape(node_at(id).outputs[0]) == group.domain;
    result_.group_of[index(id)] = number;
    budget_.place(id, number);
  }

  void start_group(NodeId id) {
    const Node& node = node_at(id);
    Group group;
    if (is_product(node.op)) {
      group.kind = KernelSpec::Kind::matmul;
      group.domain = graph_.shape(node.outputs[0]);
    } else if (is_reduction(node.op)) {
      const auto axes = reduced_axes(graph_, node);
      const Shape& shape = graph_.shape(node.inputs[0]);
      group.kind = reduces_rows(graph_, node) ? KernelSpec::Kind::loop : KernelSpec::Kind::reduce;
      group.row_axes = static_cast<int>(axes.size());
      group.domain = shape;
    } else if (is_elementwise(node.op)) {
      group.domain = graph_.shape(node.outputs[0]);
    } else {
      group.kind = KernelSpec::Kind::whole;
    }
    if (is_elementwise(node.op) || is_reduction(node.op)) {
      collect_operands(node, identity_access_of(node), -1, group.needs);
    } else {
      for (const TensorId input : node.inputs) {
        if (input == no_tensor) continue;
        const NodeId source = producer(memory_of(input));
        if (!is_leaf(node_at(source))) group.needs.insert(result_.group_of[index(source)]);
      }
    }
    result_.groups.push_back(std::move(group));
    needs_.add_last();
    budget_.add_group(all_strict_ || strict_.contains(id));
    put(id, static_cast<int>(result_.groups.size()) - 1);
  }

  // Merges a loop that was built separately into a product, reduction or loop over the same elements that it depends
  // on: a derivative and the value it is multiplied by, or Adam's second moment after the first.
  void merge_loops() {
    for (int loop = 0; target_.fuse && loop < static_cast<int>(result_.groups.size()); ++loop) {
      const Group& group = result_.groups[index(loop)];
      // A recomputed group must run after something other than the group that first computed it.
      if (group.kind != KernelSpec::Kind::loop || (group.recomputes && group.needs.size() < 2)) continue;
      for (auto other = group.needs.rbegin(); other != group.needs.rend(); ++other) {
        if (can_be_merged(loop, *other)) {
          merge(loop, *other);
          break;
        }
        if (group.recomputes) break;
      }
    }
    const std::vector<int> numbers = needs_.drop_merged();
    for (int& group : result_.group_of)
      if (group >= 0) group = numbers[index(group)];
  }

  bool holds_updates(const Group& group) const { return is_update_[index(group.nodes.front())]; }

  bool can_be_merged(int loop, int product) {
    const Group &group = result_.groups[index(loop)], &other = result_.groups[index(product)];
    if (group.domain != value_shape(other) || holds_updates(group) != holds_updates(other) ||
        group.nodes.size() + other.nodes.size() > most_nodes)
      return false;
    if (other.kind == KernelSpec::Kind::loop) {
      if (group.row_axes != other.row_axes && group.row_axes != 0 && (other.row_axes != 0 || !other.whole_domain_only))
        return false;
      // The loop's other dependences must not delay the target.
      if (!std::all_of(group.needs.upper_bound(product), group.needs.end(),
                       [&](int need) { return other.needs.contains(need); }))
        return false;
    } else if (other.kind == KernelSpec::Kind::whole || group.row_axes > 0) {
      return false;
    }
    if (!budget_.allows_to_merge(loop, product) || !needs_.can_need(product, group.needs)) return false;
    for (const NodeId id : group.nodes) result_.group_of[index(id)] = product;
    const bool fits = std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId id) {
      std::set<int> unused;
      return collect_operands(node_at(id), identity_access_of(node_at(id)), product, unused);
    });
    for (const NodeId id : group.nodes) result_.group_of[index(id)] = loop;
    return fits;
  }

  void merge(int loop, int product) {
    Group& into = result_.groups[index(product)];
    const Group& group = result_.groups[index(loop)];
    for (const NodeId id : group.nodes) result_.group_of[index(id)] = product;
    budget_.merge(loop, group.nodes, product);
    into.row_axes = std::max(into.row_axes, group.row_axes);
    into.recomputes |= group.recomputes;
    into.whole_domain_only &= group.whole_domain_only;
    needs_.merge(loop, product);
  }

  // A value needs memory if another kernel or the user reads it, or if its own kernel reads it at another element.
  void decide_memory() {
    for (const TensorInfo& tensor : graph_.tensors)
      if (is_leaf(node_at(tensor.producer))) result_.in_memory[index(node_at(tensor.producer).outputs[0])] = true;
    const auto keep = [&](TensorId id) { result_.in_memory[index(view_source(id))] = true; };
    for (const NamedTensor& output : graph_.outputs) keep(output.tensor);
    for (const NamedTensor& capture : graph_.captures) keep(capture.tensor);
    for (const Update& update : graph_.updates) keep(update.value);
    for (std::size_t number = 0; number < result_.groups.size(); ++number) {
      const Group& group = result_.groups[number];
      for (const NodeId id : group.nodes) {
        const Node& node = node_at(id);
        const bool fused = is_elementwise(node.op) || is_reduction(node.op);
        if (!fused)
          for (const TensorId output : node.outputs)
            if (group.kind == KernelSpec::Kind::whole) result_.in_memory[index(output)] = true;
        if (fused) {
          mark_operands(node, identity_access_of(node), static_cast<int>(number));
          continue;
        }
        for (const TensorId input : node.inputs)
          if (input != no_tensor) read_memory(memory_of(input), static_cast<int>(number));
      }
    }
  }

  void read_memory(TensorId id, int group) {
    const TensorId source = view_source(id);
    result_.in_memory[index(source)] = true;
    readers_[index(source)].insert(group);
  }

  void mark_operands(const Node& node, const Access& access, int group) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == no_tensor) continue;
      if (looks_up(node.op, i)) {
        read_memory(node.inputs[i], group);
        unaligned_.insert({view_source(node.inputs[i]), group});
      } else {
        mark_reads(node.inputs[i], operand_access(node, i, access), group);
      }
    }
  }

  void mark_reads(TensorId id, Access access, int group) {
    const NodeId source = producer(view_source(id));
    if (is_view(node_at(producer(id)).op)) {
      if (result_.group_of[index(source)] != group && !inlined_[index(source)]) {
        read_memory(id, group);
        unaligned_.insert({view_source(id), group});
        return;
      }
      for (; is_view(node_at(producer(id)).op); id = node_at(producer(id)).inputs[0])
        access = view_operand_access(graph_, node_at(producer(id)), access).value();
    }
    if (inlined_[index(source)]) {
      mark_operands(node_at(source), access, group);
      return;
    }
    if (result_.group_of[index(source)] == group) return;
    read_memory(id, group);
    if (!is_aligned(graph_.shape(id), access) || graph_.shape(id) != value_shape(result_.groups[index(group)]))
      unaligned_.insert({id, group});
  }

  // An update is written in place if all other readers of the old version have finished, and the kernel that computes
  // it reads only the element that it writes.
  void choose_in_place() {
    result_.written_to.assign(graph_.tensors.size(), no_tensor);
    for (const Update& update : graph_.updates) {
      const TensorId value = view_source(update.value);
      const int group = result_.group_of[index(producer(value))];
      if (group < 0 || !is_whole_view(graph_, update.value, layouts_[index(update.value)]) ||
          result_.written_to[index(value)] != no_tensor)
        continue;
      if (!row_major_result(value)) continue;
      std::set<int> readers = readers_[index(update.target)];
      const bool reads_target = readers.erase(group) > 0;
      const KernelSpec::Kind kind = result_.groups[index(group)].kind;
      if (reads_target && kind == KernelSpec::Kind::whole &&
          !overwrites_operand(node_at(producer(value)), value, update.target))
        continue;
      if (reads_target && (unaligned_.contains({update.target, group}) || is_matmul_operand(update.target, group)))
        continue;
      if (!needs_.can_need(group, readers)) continue;
      needs_.add(group, readers);
      result_.written_to[index(value)] = update.target;
    }
  }

  // For ops whose first result may overwrite their first operand: elements that they do not change stay.
  bool overwrites_operand(const Node& node, TensorId value, TensorId target) const {
    const auto reads_target = [&](TensorId id) { return id != no_tensor && view_source(id) == target; };
    const TensorId first = node.inputs[0];
    return has(node.op, Trait::Overwrites) && node.outputs[0] == value && reads_target(first) &&
           is_whole_view(graph_, first, layouts_[index(first)]) &&
           std::none_of(node.inputs.begin() + 1, node.inputs.end(), reads_target);
  }

  bool row_major_result(TensorId id) const { return !has(node_at(producer(id)).op, Trait::HeadsInside); }

  bool is_matmul_operand(TensorId target, int group) const {
    const Group& from_group = result_.groups[index(group)];
    if (from_group.kind != KernelSpec::Kind::matmul) return false;
    const Node& product = node_at(from_group.nodes.front());
    return std::any_of(product.inputs.begin(), product.inputs.end(),
                       [&](TensorId id) { return memory_of(id) == target; });
  }

  // Records the groups that turned out to need too many bindings; returns whether there are new ones.
  bool find_over_budget() {
    const std::size_t before = strict_.size();
    std::vector<std::set<TensorId>> bound(result_.groups.size());
    const auto bind = [&](int group, TensorId id) {
      const TensorId target = result_.written_to[index(id)];
      bound[index(group)].insert(target == no_tensor ? id : target);
    };
    for (std::size_t id = 0; id < readers_.size(); ++id)
      for (const int group : readers_[id]) bind(group, static_cast<TensorId>(id));
    for (std::size_t number = 0; number < result_.groups.size(); ++number) {
      const Group& group = result_.groups[number];
      if (group.kind == KernelSpec::Kind::whole || group.nodes.size() == 1) continue;
      for (const NodeId id : group.nodes)
        for (const TensorId output : node_at(id).outputs)
          if (result_.in_memory[index(output)]) bind(static_cast<int>(number), output);
      const int bindings = budget_.bindings({bound[number].begin(), bound[number].end()});
      if (!budget_.allows(bindings)) strict_.insert(group.nodes[0]);
    }
    return strict_.size() > before;
  }

  const Graph& graph_;
  const Target& target_;
  std::vector<Layout> layouts_;
  Budget budget_;
  std::vector<bool> inlined_;
  std::vector<bool> is_update_;  // by node: part of an update, which shares no kernel with other nodes
  std::set<NodeId> strict_;      // the first nodes of groups that must not rely on later nodes joining
  bool all_strict_ = false;
  Fusion result_;
  GroupNeeds needs_{result_.groups};
  std::vector<std::set<int>> readers_;            // by tensor: groups that read its memory
  std::set<std::pair<TensorId, int>> unaligned_;  // where a group reads other elements than it computes
};

}  // namespace

Fusion fuse(const Graph& graph, const Target& target) { return Fuser(graph, target).run(); }

}  // namespace jerboa::detail
