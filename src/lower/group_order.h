#pragma once

#include "lower/fuse.h"

namespace jerboa::detail {

/// Sorts groups topologically; among the groups that are ready, the one first in the user's order runs first, so that a
/// gradient is consumed as soon as it exists.
void sort_groups(Fusion& fusion);

}  // namespace jerboa::detail
