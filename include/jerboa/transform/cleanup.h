#pragma once

#include <jerboa/ir/graph.h>

namespace jerboa {

/// Merges nodes that compute the same thing (common subexpression elimination). A node tagged `recompute` is never
/// merged into an earlier one.
Graph merge_common_nodes(const Graph& graph);
/// Recomputes activations and norms before a late use if their operand is kept alive until then anyway, so that a
/// training step keeps only one of the two.
Graph recompute_activations(const Graph& graph);
/// Removes nodes that no output, capture or update needs (dead code elimination). Inputs, parameters and states stay.
Graph remove_dead_nodes(const Graph& graph);

}  // namespace jerboa
