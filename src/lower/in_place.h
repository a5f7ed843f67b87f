#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Whether a load reads exactly the element that the store writes.
bool reads_what_it_writes(const KernelSpec& kernel, const Load& load, const Store& store);

/// Lets results of a kernel reuse the buffers of operands that nothing reads later, if the kernel reads only the
/// element that it writes. They become one buffer and one binding.
void take_over_buffers(Program& program);

}  // namespace jerboa::detail
