#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Proves of the steps of a GPU's code, over memory that has been verified, that they bind what is there, aligned, and
/// never one buffer for reading and for writing at once. Throws GraphError that names the step.
void verify_gpu(const ProgramMemory& memory, const GpuCode& code);

}  // namespace jerboa::detail
