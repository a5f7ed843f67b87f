#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Whether a load reads exactly the element that the store writes.
bool reads_what_it_writes(const KernelSpec& kernel, const Load& load, const Store& store);

/// Makes results of a kernel take over the buffers of operands that nothing reads later, where the kernel reads of them
/// only the very element that it writes. Then both are one buffer and one binding.
void take_over_buffers(Program& program);

}  // namespace jerboa::detail
