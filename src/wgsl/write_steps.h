#pragma once

#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/merge_steps.h"

namespace jerboa::wgsl {

/// The steps of a program, ordered and merged. Adds the memory that kernels need between their shaders as buffers of
/// the program.
std::vector<WrittenStep> write_steps(Program& program, const Target& target);
/// The same for the phases of one dispatch (persistent.h): activations are passed between workgroups, and merged
/// products share the available workgroups.
std::vector<WrittenStep> write_phases(Program& program, const Target& target);

}  // namespace jerboa::wgsl
