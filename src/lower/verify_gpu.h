#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Proves that the steps of a program's GpuCode, where it has one, bind memory that is there, aligned, and never one
/// buffer for reading and for writing at once. Throws GraphError that names the step.
void verify_gpu(const Program& program);

}  // namespace jerboa::detail
