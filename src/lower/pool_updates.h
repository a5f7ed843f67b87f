#pragma once

#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// By node: element-wise ops whose results are used only by updates of parameters and states, that is the optimizer's
/// arithmetic on the gradients. None if too few are updated for pooling to pay off.
std::vector<bool> find_update_nodes(const Graph& graph);

/// Merges identical updates of many parameters into one dispatch: parameters, moments and gradients are each placed
/// contiguously in pools, in the same order, and one kernel runs over all of them. Sums of the gradients' squares, for
/// a global norm, then also read a pool as one tensor.
void pool_updates(Program& program, const Target& target);

}  // namespace jerboa::detail
