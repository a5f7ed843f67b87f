#pragma once

#include <string>

#include <jerboa/lower/program.h>

namespace jerboa {

/// Writes the kernels of a program as WGSL: fills in `program.gpu`, and adds the memory that kernels need between their
/// shaders as buffers of the program. JERBOA_DUMP=wgsl prints the result to standard error.
void emit_wgsl(Program& program, const Target& target);

/// The steps of a program, and the source of its shaders.
std::string print_gpu(const Program& program);

}  // namespace jerboa
