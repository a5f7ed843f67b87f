#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Checks, on verified memory, that the steps of GPU code bind existing, aligned memory, and never bind one buffer for
/// reading and writing at once. Throws GraphError that names the step.
void verify_gpu(const ProgramMemory& memory, const GpuCode& code);

}  // namespace jerboa::detail
