#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Assigns memory to every activation of a program: buffers whose live ranges do not overlap share memory. One arena
/// with offsets or, if the target needs separate arenas, a set of arenas that each hold one buffer at a time.
void plan_memory(Program& program, const Target& target);

/// The same for buffers whose live ranges are already known.
void assign_memory(Program& program, const Target& target);

}  // namespace jerboa::detail
