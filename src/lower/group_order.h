#pragma once

#include "lower/fuse.h"

namespace jerboa::detail {

/// Puts groups into an order in which they can run; among those that are ready, the one that the user's order begins
/// first: so a gradient is used up as soon as it is there.
void sort_groups(Fusion& fusion);

}  // namespace jerboa::detail
