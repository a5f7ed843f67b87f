#include "lower/views.h"

#include <algorithm>

#include <jerboa/ir/shapes.h>
#include <jerboa/transform/cleanup.h>

#include "lower/axes.h"
#include "transform/rewrite.h"

namespace jerboa::detail {
namespace {

// Results of attention are laid out as [batch, time, heads, size], so that merging the heads is free.
bool has_heads_inside(const Graph& graph, TensorId id) {
  return has(graph.producer(id).op, Trait::HeadsInside) && graph.shape(id).size() == 4;
}

std::vector<Dim> strides_of_new(const Graph& graph, TensorId id) {
  const Shape& shape = graph.shape(id);
  if (!has_heads_inside(graph, id)) return row_major_strides(shape);
  const auto inner = row_major_strides({shape[0], shape[2], shape[1], shape[3]});
  return {inner[0], inner[2], inner[1], inner[3]};
}

// Strides of `to` over memory where `from` has `strides`; nullopt if there are none.
std::optional<std::vector<Dim>> reshape_strides(const Shape& from, const std::vector<Dim>& strides, const Shape& to) {
  if (element_count(to) == Dim(0)) return row_major_strides(to);
  std::vector<Dim> result(to.size(), Dim(0));
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    // Take axes from both sides until the element counts match; each such block must be contiguous.
    std::size_t i_end = i, j_end = j;
    Dim have(1), want(1);
    if (i_end < from.size()) have = from[i_end++];
    if (j_end < to.size()) want = to[j_end++];
    while (!(have == want)) {
      const bool more_have = i_end < from.size() && divide_exactly(want, have).has_value();
      if (more_have)
        have = have * from[i_end++];
      else if (j_end < to.size())
        want = want * to[j_end++];
      else if (i_end < from.size())
        have = have * from[i_end++];
      else
        return std::nullopt;
    }
    Dim innermost(1), expected(0);
    bool first = true;
    for (std::size_t axis = i_end; axis-- > i;) {
      if (from[axis] == Dim(1)) continue;
      if (first) {
        innermost = strides[axis];
        first = false;
      } else if (!(strides[axis] == expected)) {
        return std::nullopt;
      }
      expected = strides[axis] * from[axis];
    }
    Dim stride = innermost;
    for (std::size_t axis = j_end; axis-- > j;) {
      result[axis] = to[axis] == Dim(1) ? Dim(0) : stride;
      stride = stride * to[axis];
    }
    i = i_end;
    j = j_end;
  }
  return result;
}

std::optional<Layout> view_layout(const Graph& graph, const Node& node, const Layout& base) {
  const Shape& from = graph.shape(node.inputs[0]);
  const Shape& to = graph.shape(node.outputs[0]);
  Layout layout{base.root, base.offset, {}};
  switch (node.op) {
    case Op::reshape: {
      auto strides = reshape_strides(from, base.strides, to);
      if (!strides) return std::nullopt;
      layout.strides = std::move(*strides);
      return layout;
    }
    case Op::transpose:
      for (const int axis : node.as<TransposeAttrs>().perm)
        layout.strides.push_back(base.strides[static_cast<std::size_t>(axis_of(axis, static_cast<int>(from.size())))]);
      return layout;
    case Op::broadcast_to: {
      const std::size_t added = to.size() - from.size();
      for (std::size_t i = 0; i < to.size(); ++i)
        layout.strides.push_back(i < added || !(from[i - added] == to[i]) ? Dim(0) : base.strides[i - added]);
      return layout;
    }
    case Op::slice: {
      const SliceRange range = resolve_slice(node.as<SliceAttrs>(), from).value();
      layout.strides = base.strides;
      Dim& stride = layout.strides[static_cast<std::size_t>(range.axis)];
      layout.offset = layout.offset + range.start * stride;
      stride = stride * Dim(range.step);
      return layout;
    }
    default: return std::nullopt;
  }
}

}  // namespace

bool is_row_major(const Shape& shape, const Layout& layout) { return is_row_major(shape, layout.strides); }

bool is_whole_view(const Graph& graph, TensorId id, const Layout& layout) {
  const Shape& shape = graph.shape(id);
  return layout.offset == Dim(0) && element_count(shape) == element_count(graph.shape(layout.root)) &&
         is_row_major(shape, layout);
}

bool is_view(Op op) { return info(op).lowering == Lowering::View; }

namespace {

Layout layout_of_new(const Graph& graph, TensorId id) { return {id, 0, strides_of_new(graph, id)}; }

// The layouts of all tensors; nullopt if a reshape needs a copy of its operand.
std::optional<std::vector<Layout>> try_layouts(const Graph& graph) {
  std::vector<Layout> layouts(graph.tensors.size());
  for (const Node& node : graph.nodes)
    for (const TensorId id : node.outputs) {
      auto layout = is_view(node.op) ? view_layout(graph, node, layouts[static_cast<std::size_t>(node.inputs[0])])
                                     : layout_of_new(graph, id);
      if (!layout) return std::nullopt;
      layouts[static_cast<std::size_t>(id)] = std::move(*layout);
    }
  return layouts;
}

}  // namespace

Graph join_reshapes(Graph graph) {
  const auto reads_reshape = [&](const Node& node) {
    return node.op == Op::reshape && graph.producer(node.inputs[0]).op == Op::reshape;
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), reads_reshape)) return graph;
  Graph result;
  GraphRewriter rewriter(graph, result);
  for (const Node& node : graph.nodes) {
    if (!reads_reshape(node)) {
      rewriter.copy(node);
      continue;
    }
    // Its operand has already been joined.
    const TensorId source = result.producer(rewriter.at(node.inputs[0])).inputs[0];
    const std::size_t before = result.tensors.size();
    rewriter.replace(node, result.add_node(Op::reshape, {source}, node.attrs, node.site), before);
  }
  rewriter.finish();
  return remove_dead_nodes(std::move(result));
}

Graph make_views_possible(Graph graph) {
  if (try_layouts(graph)) return graph;
  Graph result;
  GraphRewriter rewriter(graph, result);
  std::vector<Layout> layouts;
  const auto layout_at = [&](TensorId id) -> Layout& { return layouts[static_cast<std::size_t>(id)]; };
  // A view's layout is known to exist here.
  const auto note_last = [&] {
    layouts.resize(result.tensors.size());
    const Node& node = result.nodes.back();
    for (const TensorId id : node.outputs)
      layout_at(id) =
          is_view(node.op) ? view_layout(result, node, layout_at(node.inputs[0])).value() : layout_of_new(result, id);
  };
  for (const Node& node : graph.nodes) {
    const TensorId input = node.op == Op::reshape ? rewriter.at(node.inputs[0]) : no_tensor;
    if (input == no_tensor ||
        reshape_strides(result.shape(input), layout_at(input).strides, graph.shape(node.outputs[0]))) {
      rewriter.copy(node);
      note_last();
      continue;
    }
    // A cast to the same type is a copy.
    const TensorId copy = result.add_node(Op::cast, {input}, CastAttrs{result.type(input).dtype}, node.site).front();
    note_last();
    const std::size_t before = result.tensors.size();
    rewriter.replace(node, result.add_node(Op::reshape, {copy}, node.attrs, node.site), before);
    note_last();
  }
  rewriter.finish();
  return result;
}

std::vector<Layout> layouts_of(const Graph& graph) { return try_layouts(graph).value(); }

}  // namespace jerboa::detail
