#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// An index along one axis of a tensor: offset + sum of coefficient * index over the axes of a kernel's domain.
struct AffineIndex {
  Dim offset = 0;
  std::vector<std::pair<int, Dim>> terms;

  static AffineIndex axis(int axis) { return {0, {{axis, Dim(1)}}}; }
  /// Whether it is just the index along this axis of the domain.
  bool is_axis(int axis) const {
    return terms.size() == 1 && terms[0].first == axis && terms[0].second == Dim(1) && offset == Dim(0);
  }
};

/// Maps an element of the domain to an element of a tensor: one index per axis of the tensor.
using Access = std::vector<AffineIndex>;

Access identity_access(std::size_t rank);
/// The access to an operand that broadcasts to a result with this access.
Access broadcast_access(const Access& result, const Shape& result_shape, const Shape& operand_shape);
/// The access to a view's operand; nullopt for a reshape that does more than add or drop axes of size 1.
std::optional<Access> view_operand_access(const Graph& graph, const Node& view, const Access& result);

/// Offsets and strides over the domain, for memory with these strides.
IndexMap index_map(const Access& access, const Dim& offset, const std::vector<Dim>& strides, std::size_t domain_rank);

}  // namespace jerboa::detail
