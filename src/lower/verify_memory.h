#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Checks, independently of the code, that every buffer lies inside its arena or pool, that no two buffers share memory
/// while both are in use, and that everything read after a run has a buffer. Throws GraphError that names the buffers.
void verify_memory(const ProgramMemory& memory, const Target& target);

}  // namespace jerboa::detail
