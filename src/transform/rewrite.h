#pragma once

#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// Copies a graph node by node into a new one, so that a pass only says what it does differently. It keeps names,
/// storage and the tensors' other properties, and which new tensor stands for each old one.
class GraphRewriter {
 public:
  GraphRewriter(const Graph& from, Graph& to) : from_(from), to_(to), moved_(from.tensors.size(), no_tensor) {
    to_.constants = from.constants;
    to_.training = from.training;
  }

  /// The new tensor for an old one; no_tensor stays.
  TensorId at(TensorId old) const { return old == no_tensor ? no_tensor : moved_[static_cast<std::size_t>(old)]; }
  std::vector<TensorId> at(const std::vector<TensorId>& old) const;

  /// The node as it is, on the new operands.
  void copy(const Node& node);
  /// These new tensors stand for the node's outputs. One that this node made takes over the old name.
  void replace(const Node& node, const std::vector<TensorId>& made, std::size_t tensors_before);
  /// Outputs, captures and updates, once every node is done.
  void finish();

  std::vector<TensorId> take_map() { return std::move(moved_); }

 private:
  const Graph& from_;
  Graph& to_;
  std::vector<TensorId> moved_;
};

}  // namespace jerboa::detail
