#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Checks that the dispatches of a program refer to existing kernels and buffers. Throws GraphError that names the
/// dispatch.
void verify_dispatches(const Program& program);

/// Checks, in a program whose memory, references and accesses have been verified, that nothing is read before it is
/// written, and that parts of one dispatch are independent. Throws GraphError that names the dispatch and the buffers.
/// A program without dispatches is for a GPU, and valid.
void verify_cpu(const Program& program, const Target& target);

}  // namespace jerboa::detail
