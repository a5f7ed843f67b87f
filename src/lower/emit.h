#pragma once

#include <jerboa/lower/program.h>

#include "lower/fuse.h"

namespace jerboa::detail {

/// Turns groups into kernels and dispatches over buffers, whose memory is not planned yet.
Program emit(const Graph& graph, const Fusion& fusion, const Target& target);

/// A kernel as text, for dumps and as a key: equal for equal kernels.
std::string print(const KernelSpec& kernel);
/// A report of a program's memory: storage, arenas compared with their peak use, bindings.
std::string print_plan(const Program& program, const Target& target);

}  // namespace jerboa::detail
