#pragma once

#include <jerboa/ir/graph.h>

namespace jerboa {

/// One node for several that compute the same thing. A node tagged `recompute` is never merged into an earlier one.
Graph merge_common_nodes(const Graph& graph);
/// Computes activations and norms again before a use long after the first ones, where their operand is kept until then
/// anyway: a training step then keeps one of the two.
Graph recompute_activations(const Graph& graph);
/// Without the nodes that no output, capture or update needs. Inputs, parameters and states stay.
Graph remove_dead_nodes(const Graph& graph);

}  // namespace jerboa
