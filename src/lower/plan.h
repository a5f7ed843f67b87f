#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Gives every activation of a program its place: buffers whose lives do not overlap share memory. One arena with
/// offsets, or, where the target wants arenas apart, a pool of arenas that hold one buffer at a time each.
void plan_memory(Program& program, const Target& target);

/// The same for buffers whose lives are known already.
void assign_memory(Program& program, const Target& target);

}  // namespace jerboa::detail
