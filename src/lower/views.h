#pragma once

#include <optional>
#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// The location of a tensor's elements: in the memory of `root`, which is the tensor itself or the tensor that it
/// views.
struct Layout {
  TensorId root = no_tensor;
  Dim offset = 0;
  std::vector<Dim> strides;
};

/// Whether the elements of a tensor of this shape are contiguous in row-major order.
bool is_row_major(const Shape& shape, const Layout& layout);

/// Whether a tensor views the whole of another, in the same order.
bool is_whole_view(const Graph& graph, TensorId id, const Layout& layout);

/// Whether the op only reinterprets its operand's memory.
bool is_view(Op op);

/// Replaces a reshape of a reshape by one reshape, which may need no copy where two did.
Graph join_reshapes(Graph graph);

/// The same graph with a copy wherever a reshape cannot be expressed as strides over its operand's memory.
Graph make_views_possible(Graph graph);

/// The layout of every tensor of such a graph.
std::vector<Layout> layouts_of(const Graph& graph);

}  // namespace jerboa::detail
