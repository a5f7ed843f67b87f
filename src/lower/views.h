#pragma once

#include <optional>
#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// Where a tensor's elements are: in the memory of `root`, which is the tensor itself or what it is a view of.
struct Layout {
  TensorId root = no_tensor;
  Dim offset = 0;
  std::vector<Dim> strides;
};

/// Whether the elements of a tensor of this shape follow each other in row-major order.
bool is_row_major(const Shape& shape, const Layout& layout);

/// Whether a tensor is the whole of the one that it is a view of, in the same order.
bool is_whole_view(const Graph& graph, TensorId id, const Layout& layout);

/// Whether the op only reinterprets its operand's memory.
bool is_view(Op op);

/// Replaces a reshape of a reshape with one reshape, which may need no copy where two did.
Graph join_reshapes(Graph graph);

/// The same graph with a copy wherever a reshape cannot be expressed as strides over its operand's memory.
Graph make_views_possible(Graph graph);

/// The layout of every tensor of such a graph.
std::vector<Layout> layouts_of(const Graph& graph);

}  // namespace jerboa::detail
