#pragma once

#include <jerboa/lower/program.h>

namespace jerboa {

/// Writes the kernels of a program as WGSL: fills in `program.gpu`, and adds the memory that kernels need between their
/// shaders as buffers of the program.
void emit_wgsl(Program& program, const Target& target);

}  // namespace jerboa
