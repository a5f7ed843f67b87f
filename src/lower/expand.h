#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Rewrites ops whose row says Decompose or Expand into element-wise ops, reductions and views for the fuser; then
/// merges common nodes and drops dead ones.
Graph expand(Graph graph, const Target& target);

}  // namespace jerboa::detail
