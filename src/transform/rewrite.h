#pragma once

#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// Copies a graph node by node into a new one, so that a pass only specifies its changes. It keeps names, storage and
/// the tensors' other properties, and records which new tensor replaces each old one.
class GraphRewriter {
 public:
  GraphRewriter(const Graph& from, Graph& to) : from_(from), to_(to), moved_(from.tensors.size(), no_tensor) {
    to_.constants = from.constants;
    to_.training = from.training;
    to_.nodes.reserve(from.nodes.size());
    to_.tensors.reserve(from.tensors.size());
  }

  /// The new tensor for an old one; no_tensor stays.
  TensorId at(TensorId old) const { return old == no_tensor ? no_tensor : moved_[static_cast<std::size_t>(old)]; }
  std::vector<TensorId> at(const std::vector<TensorId>& old) const;

  /// Copies the node with the new operands.
  void copy(const Node& node);
  /// Replaces the node's outputs by these new tensors. A tensor created for this node takes over the old name.
  void replace(const Node& node, const std::vector<TensorId>& made, std::size_t tensors_before);
  /// Copies outputs, captures and updates, once every node is done.
  void finish();

  std::vector<TensorId> take_map() { return std::move(moved_); }

 private:
  const TensorType* known_type(const Node& node, const std::vector<TensorId>& inputs) const;

  const Graph& from_;
  Graph& to_;
  std::vector<TensorId> moved_;
};

}  // namespace jerboa::detail
