#pragma once

#include <set>
#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program.h>

#include "lower/access.h"
#include "lower/views.h"

namespace jerboa::detail {

/// Nodes that become one kernel.
struct Group {
  KernelSpec::Kind kind = KernelSpec::Kind::loop;
  std::vector<NodeId> nodes;
  Shape domain;
  int row_axes = 0;               ///< trailing axes of the domain that its reductions run over
  std::set<int> needs;            ///< groups that must run before
  bool recomputes = false;        ///< holds a node that is recomputed to save memory
  bool whole_domain_only = true;  ///< every node has one value per element, so that rows can still be reduced
};

/// The result of fusion: which kernel each node belongs to, and which tensors have memory.
struct Fusion {
  std::vector<Group> groups;         ///< in an order in which they can run
  std::vector<int> group_of;         ///< by node; -1: no kernel (leaf, view or inlined)
  std::vector<bool> in_memory;       ///< by tensor: written to a buffer, or a leaf
  std::vector<Layout> layouts;       ///< by tensor
  std::vector<bool> inlined;         ///< by node: recomputed wherever it is used
  std::vector<TensorId> written_to;  ///< by tensor: the parameter or state whose memory it is written to, or no_tensor
};

Fusion fuse(const Graph& graph, const Target& target);

/// An element-wise op in the widest sense: each element of the result is a function of operand elements whose indices
/// are affine in the result's indices, or looked up.
bool is_elementwise(Op op);
bool is_reduction(Op op);
/// A matrix product, into whose kernel element-wise consumers are fused.
bool is_product(Op op);
/// Whether a node's result is in memory before anything runs: an input, a parameter, a constant tensor.
bool is_leaf(const Node& node);

/// The axes that a reduction runs over.
std::vector<int> reduced_axes(const Graph& graph, const Node& node);
/// Whether the op looks up this operand's elements, so that the operand must be in memory.
bool looks_up(Op op, std::size_t operand);

/// How a value computed in a group is accessed there: axis i along axis i of the domain.
Access identity_access(const Shape& shape);
/// Whether reading such a value with this access yields the value of the same element, or of the same row.
bool is_aligned(const Shape& shape, const Access& access);

}  // namespace jerboa::detail
