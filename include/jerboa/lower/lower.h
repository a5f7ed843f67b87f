#pragma once

#include <jerboa/lower/program.h>

namespace jerboa {

/// Compiles a graph for a target: rewrites it into primitive ops, fuses them into kernels, plans the memory.
/// JERBOA_DUMP=ir,fused,plan prints the stages and their times to standard error.
Program lower(const Graph& graph, const Target& target);

/// Checks that a program is valid: buffers in use at the same time do not overlap, nothing is read before it is
/// written, bindings and sizes are within the target's limits. Throws GraphError that names the buffers.
void verify(const Program& program, const Target& target);

}  // namespace jerboa
