#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Checks that every kernel is well formed, that all its reads and writes stay inside the buffers bound to it, and that
/// everything read after a run lies inside its buffer, for these values of the symbols. A host can then use every index
/// unchecked. Throws GraphError or ShapeError that names the dispatch and the buffer. Linear in the size of the
/// program, whose memory and dispatches must have been verified.
void verify_access(const Program& program, const SymbolValues& symbols);

/// The same at both ends of the symbols' ranges; a host calls verify_access with the symbol values of each run.
void verify_access_at_bounds(const Program& program);

}  // namespace jerboa::detail
