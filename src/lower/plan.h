#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Gives every activation of a program its place in an arena: buffers whose lives do not overlap share memory, best fit
/// first for the largest.
void plan_memory(Program& program, const Target& target);

}  // namespace jerboa::detail
