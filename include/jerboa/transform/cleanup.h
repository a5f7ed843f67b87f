#pragma once

#include <jerboa/ir/graph.h>

namespace jerboa {

// Passes return the graph as it is if they have nothing to change, so pass a graph that is no longer needed with
// std::move.

/// Merges nodes that compute the same thing (common subexpression elimination). A node tagged `recompute` is never
/// merged into an earlier one.
Graph merge_common_nodes(Graph graph);
/// Recomputes activations and norms before a late use if their operand is kept alive until then anyway, so that a
/// training step keeps only one of the two.
Graph recompute_activations(Graph graph);
/// Removes nodes that no output, capture or update needs (dead code elimination). Inputs, parameters and states stay.
Graph remove_dead_nodes(Graph graph);
/// Merges common nodes, then removes dead ones.
Graph clean_up(Graph graph);

}  // namespace jerboa
