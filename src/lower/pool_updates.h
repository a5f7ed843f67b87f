#pragma once

#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// By node: element-wise ops whose results only go into updates of parameters and states: what an optimizer does with
/// the gradients. None where so few are updated that it is not worth to pool them.
std::vector<bool> find_update_nodes(const Graph& graph);

/// Updates of many parameters that are all alike become one dispatch: parameters, moments and gradients are put side by
/// side, each in the same order, and one kernel runs over all of them. Sums of the gradients' squares, for a global
/// norm, then read them as one tensor, too.
void pool_updates(Program& program, const Target& target);

}  // namespace jerboa::detail
