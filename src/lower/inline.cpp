#include "lower/inline.h"

#include <algorithm>

#include "lower/fuse.h"
#include "lower/index.h"
#include "lower/widening.h"

namespace jerboa::detail {
namespace {

// Nodes that are recomputed at every use must be small: at most this many nodes, counting inlined operands every time
// they occur. This also bounds the depth of everything that recurses through them.
constexpr int most_inlined = 256;

class Inliner {
 public:
  Inliner(const Graph& graph, const Target& target, const std::vector<Layout>& layouts)
      : graph_(graph),
        target_(target),
        layouts_(layouts),
        inlined_(graph.nodes.size(), false),
        size_(graph.nodes.size(), 0),
        reads_memory_(graph.nodes.size(), false),
        kept_(graph.tensors.size(), false),
        uses_(graph.tensors.size()) {
    const auto keep = [&](TensorId id) { kept_[index(source(id))] = true; };
    for (const NamedTensor& output : graph.outputs) keep(output.tensor);
    for (const NamedTensor& capture : graph.captures) keep(capture.tensor);
    for (const Update& update : graph.updates) keep(update.value);
    for (NodeId id = 0; id < count(); ++id)
      for (const TensorId input : node_at(id).inputs)
        if (input != no_tensor) uses_[index(input)].push_back(id);
  }

  std::vector<bool> run() {
    for (NodeId id = 0; id < count(); ++id) {
      size_[index(id)] = inlined_size(node_at(id));
      inlined_[index(id)] = size_[index(id)] <= most_inlined && is_inlined(node_at(id));
      reads_memory_[index(id)] = reads_memory(node_at(id));
    }
    if (target_.fuse) add_prologues();
    return std::move(inlined_);
  }

 private:
  NodeId count() const { return static_cast<NodeId>(graph_.nodes.size()); }
  const Node& node_at(NodeId id) const { return graph_.nodes[index(id)]; }
  NodeId producer(TensorId id) const { return graph_.tensor(id).producer; }
  // The tensor behind a chain of views.
  TensorId source(TensorId id) const { return layouts_[index(id)].root; }

  // The nodes that a kernel computes for one element of this node if it is inlined.
  int inlined_size(const Node& node) const {
    int size = has(node.op, Trait::Computed) ? 0 : 1;
    for (const TensorId input : node.inputs) {
      if (input == no_tensor || size > most_inlined) continue;
      const NodeId from = producer(source(input));
      if (inlined_[index(from)]) size += size_[index(from)];
    }
    return size;
  }

  bool is_inlined(const Node& node) const {
    if (!is_elementwise(node.op) || kept_[index(node.outputs[0])]) return false;
    if (has(node.op, Trait::Costly)) return false;
    // The masks of moved elements need unmodified axes of the domain.
    if (has(node.op, Trait::Moves)) return target_.fuse && only_use_is_aligned(node.outputs[0]);
    const bool free = std::all_of(node.inputs.begin(), node.inputs.end(), [&](TensorId input) {
      return input == no_tensor || inlined_[index(producer(source(input)))];
    });
    if (free && !repeats_long_chain(node) && can_inline_uses(node.outputs[0])) return true;
    if (!target_.fuse) return false;
    // A wide copy of a 16-bit tensor would cost more memory, and more time to read.
    if ((widens(graph_, node) || changes_small_leaf(node)) && can_inline_uses(node.outputs[0])) return true;
    return only_use_moves_elements(node.outputs[0]) || is_summed_only(node) ||
           (reads_leaves_only(node) && only_use_is_aligned(node.outputs[0]));
  }

  // Whether a cheap node, such as a square, is read only by a sum over rows, which then computes it: it would need
  // memory if it joined the kernel that computes its operand.
  bool is_summed_only(const Node& node) const {
    const TensorId operand = varying_operand(graph_, node), result = node.outputs[0];
    if (!has(node.op, Trait::Cheap) || node.recompute || operand == no_tensor || uses_[index(result)].size() != 1)
      return false;
    const Node& user = node_at(uses_[index(result)][0]);
    // The sum then reads the node's operand instead of computing it again.
    const bool is_stored = !inlined_[index(producer(source(operand)))] && source(operand) == operand;
    return is_stored && is_reduction(user.op) && reduces_rows(graph_, user) &&
           graph_.shape(operand) == graph_.shape(result);
  }

  // Whether every use, through views that an access can express, is an element-wise op or a reduction.
  bool can_inline_uses(TensorId id) const {
    std::vector<TensorId> open{id};
    while (!open.empty()) {
      const TensorId at = open.back();
      open.pop_back();
      for (const NodeId use : uses_[index(at)]) {
        const Node& user = node_at(use);
        if (is_view(user.op)) {
          if (!view_operand_access(graph_, user, identity_access(graph_.shape(user.outputs[0]).size()))) return false;
          open.push_back(user.outputs[0]);
          continue;
        }
        if (!is_elementwise(user.op) && !is_reduction(user.op)) return false;
        if (looks_up(user.op, 0) && user.inputs[0] == at) return false;
      }
    }
    return true;
  }

  // A node computed from one small vector alone, such as a norm's weights plus one, needs no separate kernel if
  // recomputing it is little work for every reader.
  bool changes_small_leaf(const Node& node) const {
    constexpr std::int64_t small = 1 << 16;
    const TensorId operand = varying_operand(graph_, node), result = node.outputs[0];
    if (operand == no_tensor || element_count(graph_.shape(result)).upper_bound() > small) return false;
    const NodeId from = producer(source(operand));
    if (!is_leaf(node_at(from)) && !inlined_[index(from)]) return false;
    return is_read_rarely(result) || (has(node.op, Trait::Cheap) && !repeats_long_chain(node));
  }

  // Whether readers with more elements than a node would recompute many ops for each of them, from values in memory
  // that take no longer to read than the result.
  bool repeats_long_chain(const Node& node) const {
    constexpr int longest = 4;
    return size_[index(producer(node.outputs[0]))] > longest && reads_memory(node) && !is_read_rarely(node.outputs[0]);
  }

  bool reads_memory(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](TensorId input) {
      if (input == no_tensor) return false;
      const NodeId from = producer(source(input));
      return !inlined_[index(from)] || reads_memory_[index(from)];
    });
  }

  // Whether every use, through views, has no more elements than the tensor, or few.
  bool is_read_rarely(TensorId id) const {
    constexpr std::int64_t few = 4096;
    const std::int64_t most = std::max(few, element_count(graph_.shape(id)).upper_bound());
    std::vector<TensorId> open{id};
    while (!open.empty()) {
      const TensorId at = open.back();
      open.pop_back();
      for (const NodeId use : uses_[index(at)]) {
        const TensorId result = node_at(use).outputs[0];
        if (is_view(node_at(use).op))
          open.push_back(result);
        else if (element_count(graph_.shape(result)).upper_bound() > most)
          return false;
      }
    }
    return true;
  }

  // A node that reads only leaves can be computed in the kernel that needs it.
  bool reads_leaves_only(const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](TensorId input) {
      if (input == no_tensor) return true;
      const NodeId from = producer(source(input));
      return is_leaf(node_at(from)) || inlined_[index(from)];
    });
  }

  // Whether the only use is element-wise, in the same shape and without a view in between.
  bool only_use_is_aligned(TensorId id) const {
    if (uses_[index(id)].size() != 1) return false;
    const Node& user = node_at(uses_[index(id)][0]);
    return info(user.op).lowering == Lowering::Loop && !has(user.op, Trait::Moves | Trait::AddsAxis | Trait::LooksUp) &&
           graph_.shape(user.outputs[0]) == graph_.shape(id);
  }

  bool only_use_moves_elements(TensorId id) const {
    TensorId at = id;
    for (;;) {
      if (uses_[index(at)].size() != 1) return false;
      const Node& user = node_at(uses_[index(at)][0]);
      if (is_view(user.op)) {
        if (!view_operand_access(graph_, user, identity_access(graph_.shape(user.outputs[0]).size()))) return false;
        at = user.outputs[0];
        continue;
      }
      if (has(user.op, Trait::Moves)) return can_inline_uses(id);
      return is_reduction(user.op) && !reduces_rows(graph_, user) && can_inline_uses(id);
    }
  }

  static constexpr int longest_prologue = 16;

  // Nodes that products compute while they read: chains of cheap ops on one tensor that is in memory anyway, each used
  // only by products and by other such nodes.
  void add_prologues() {
    std::vector<bool> able(graph_.nodes.size(), false);
    for (NodeId id = count(); id-- > 0;)
      able[index(id)] = is_cheap(node_at(id)) && serves_products(node_at(id).outputs[0], able);
    std::vector<int> length(graph_.nodes.size(), 0);  // of the chain that ends with a node
    for (NodeId id = 0; id < count(); ++id) {
      if (!able[index(id)]) continue;
      const TensorId operand = varying_operand(graph_, node_at(id));
      length[index(id)] = length[index(producer(source(operand)))] + 1;
      able[index(id)] = length[index(id)] <= longest_prologue && is_in_memory(operand, able);
      if (!able[index(id)]) length[index(id)] = 0;
    }
    for (NodeId id = 0; id < count(); ++id)
      if (able[index(id)]) inlined_[index(id)] = true;
  }

  // Products on subgroup matrices are bound by operand loads, so an f32 operand would cost them more than a kernel that
  // narrows it once for all readers.
  bool halves_for_matrices(TensorId result, TensorId operand) const {
    return target_.subgroup_matrices != SubgroupMatrices::none && graph_.type(result).dtype == DType::f16 &&
           graph_.type(operand).dtype == DType::f32;
  }

  bool is_cheap(const Node& node) const {
    if (!has(node.op, Trait::Cheap)) return false;
    const TensorId result = node.outputs[0], operand = varying_operand(graph_, node);
    if (operand != no_tensor && halves_for_matrices(result, operand)) return false;
    return operand != no_tensor && !kept_[index(result)] && is_float(graph_.type(result).dtype) &&
           is_float(graph_.type(operand).dtype) && graph_.shape(operand) == graph_.shape(result) &&
           is_row_major(graph_.shape(operand), layouts_[index(operand)]);
  }

  bool serves_products(TensorId id, const std::vector<bool>& able) const {
    const auto& uses = uses_[index(id)];
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](NodeId use) {
      const Node& user = node_at(use);
      return has(user.op, Trait::ReadsCheap) || able[index(use)] ||
             (is_view(user.op) && source(user.outputs[0]) == source(id) && serves_products(user.outputs[0], able));
    });
  }

  // Whether the tensor is in memory, or a product can compute it too, whatever happens to the nodes that use it.
  bool is_in_memory(TensorId id, const std::vector<bool>& able) const {
    const TensorId root = source(id);
    const Node& from = graph_.producer(root);
    if (is_leaf(from) || kept_[index(root)] || able[index(producer(root))]) return true;
    if (inlined_[index(producer(root))]) return false;
    const bool always = !is_elementwise(from.op) && !is_reduction(from.op) && !is_product(from.op);
    return always || has_other_use(root, able);
  }

  bool has_other_use(TensorId id, const std::vector<bool>& able) const {
    const auto& uses = uses_[index(id)];
    return std::any_of(uses.begin(), uses.end(), [&](NodeId use) {
      const Node& user = node_at(use);
      return is_view(user.op) ? has_other_use(user.outputs[0], able) : !able[index(use)];
    });
  }

  const Graph& graph_;
  const Target& target_;
  const std::vector<Layout>& layouts_;
  std::vector<bool> inlined_;
  std::vector<int> size_;                  // by node: inlined_size
  std::vector<bool> reads_memory_;         // by node: itself, or an inlined node that it is computed from
  std::vector<bool> kept_;                 // by tensor: read by the user, or an update
  std::vector<std::vector<NodeId>> uses_;  // by tensor
};

}  // namespace

std::vector<bool> find_inlined(const Graph& graph, const Target& target, const std::vector<Layout>& layouts) {
  return Inliner(graph, target, layouts).run();
}

TensorId varying_operand(const Graph& graph, const Node& node) {
  TensorId varying = no_tensor;
  for (const TensorId input : node.inputs) {
    if (input == no_tensor || graph.producer(input).op == Op::const_scalar) continue;
    if (varying != no_tensor && varying != input) return no_tensor;
    varying = input;
  }
  return varying;
}

bool reduces_rows(const Graph& graph, const Node& node) {
  const auto axes = reduced_axes(graph, node);
  const int rank = static_cast<int>(graph.shape(node.inputs[0]).size());
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<int>(axes.size()) + static_cast<int>(i)) return false;
  return !axes.empty() && static_cast<int>(axes.size()) < rank;
}

}  // namespace jerboa::detail
