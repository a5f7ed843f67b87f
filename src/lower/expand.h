#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Rewrites what the op table decomposes, and the blocks whose row says Template, into element-wise ops, reductions and
/// views, for the fuser to put together again; then merges common nodes and drops dead ones.
Graph expand(const Graph& graph, const Target& target);

}  // namespace jerboa::detail
