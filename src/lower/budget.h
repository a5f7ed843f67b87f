#pragma once

#include <vector>

#include <jerboa/lower/program.h>

#include "lower/views.h"

namespace jerboa::detail {

/// Counts the bindings of kernels while nodes are still being put together, so that none needs more than the target
/// has.
class Budget {
 public:
  Budget(const Graph& graph, const Target& target, const std::vector<Layout>& layouts);

  /// Takes nodes out of `inlined` whose users would have to bind too much; what is left is settled.
  void settle(std::vector<bool>& inlined);

  /// Whether a node may join a group. A strict answer holds whatever becomes of the nodes that are not placed yet; the
  /// other takes it that they join too, and that updates are written in place.
  bool allows(NodeId joining, const std::vector<NodeId>& group, const std::vector<int>& group_of, bool strict) const;

  /// The bindings for these tensors, which are all different.
  int bindings(const std::vector<TensorId>& tensors) const;
  bool allows(int bindings) const { return bindings <= target_.max_bindings; }

 private:
  bool is_limited() const;
  std::vector<TensorId> find_reads(const Node& node, const std::vector<bool>& inlined) const;
  bool is_fusable(NodeId id) const;

  const Graph& graph_;
  const Target& target_;
  const std::vector<Layout>& layouts_;
  std::vector<std::vector<TensorId>> reads_;  // by node: tensors in memory, also what inlined operands read
  std::vector<std::vector<NodeId>> users_;    // by tensor: the other way round, without inlined nodes
  std::vector<bool> kept_;                    // by tensor: read by the user, or an update
  std::vector<TensorId> target_of_;           // by tensor: what it updates, or no_tensor
};

}  // namespace jerboa::detail
