#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Proves of a program's memory, whatever runs on it, that every buffer is inside what it is said to be in, that no two
/// share memory while both are in use, and that what is read after a run has a buffer. Throws GraphError that names the
/// buffers.
void verify_memory(const ProgramMemory& memory, const Target& target);

}  // namespace jerboa::detail
