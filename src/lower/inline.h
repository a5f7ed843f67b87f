#pragma once

#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program.h>

#include "lower/views.h"

namespace jerboa::detail {

/// By node: whether it is recomputed wherever it is used, instead of being stored. These are nodes that read no memory,
/// nodes that could not otherwise share a kernel with their only use, and nodes so cheap that products compute them
/// while they read an operand. The expression of an inlined node is bounded in size and depth.
std::vector<bool> find_inlined(const Graph& graph, const Target& target, const std::vector<Layout>& layouts);

/// For a node that a product computes while it reads: the operand that is not a constant.
TensorId varying_operand(const Graph& graph, const Node& node);

/// Whether trailing axes, but not all axes, are reduced: then each row of the operand is reduced separately.
bool reduces_rows(const Graph& graph, const Node& node);

}  // namespace jerboa::detail
