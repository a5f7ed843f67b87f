#pragma once

#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program.h>

#include "lower/views.h"

namespace jerboa::detail {

/// By node: whether it is computed again wherever it is used, instead of being stored. Those are nodes that read no
/// memory at all, those whose only use cannot share a kernel with them otherwise, and what is so little work that
/// products do it as they read an operand. What an inlined node is computed from is bounded in size and depth.
std::vector<bool> find_inlined(const Graph& graph, const Target& target, const std::vector<Layout>& layouts);

/// Of a node that a product computes as it reads: the operand that is not a constant.
TensorId varying_operand(const Graph& graph, const Node& node);

/// Trailing axes, but not all there are: then each row of the operand is reduced by itself.
bool reduces_rows(const Graph& graph, const Node& node);

}  // namespace jerboa::detail
