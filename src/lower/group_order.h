#pragma once

#include "lower/fuse.h"

namespace jerboa::detail {

/// Sorts groups topologically; among those that are ready, the one that comes first in the user's order runs first, so
/// that a gradient is consumed as soon as it exists.
void sort_groups(Fusion& fusion);

}  // namespace jerboa::detail
