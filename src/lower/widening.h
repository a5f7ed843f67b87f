#pragma once

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// Whether a node only makes a float tensor wider, which readers of the narrow tensor can do themselves.
inline bool widens(const Graph& graph, const Node& node) {
  if (node.op != Op::cast) return false;
  const DType from = graph.type(node.inputs[0]).dtype, to = graph.type(node.outputs[0]).dtype;
  return is_float(from) && is_float(to) && bits(from) < bits(to);
}

}  // namespace jerboa::detail
