#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Proves of every kernel that it is well formed and that all it reads and writes lies inside the buffers that are
/// bound to it, and of what is read after a run that it lies inside its buffer, for these values of the symbols. A host
/// that has done so can follow every index without looking. Throws GraphError or ShapeError that name the dispatch and
/// the buffer. Linear in the size of the program. Its memory and dispatches must have been verified.
void verify_access(const Program& program, const SymbolValues& symbols);

/// The same at both ends of the symbols' ranges; a host with symbols calls verify_access for the values of each run.
void verify_access_at_bounds(const Program& program);

}  // namespace jerboa::detail
