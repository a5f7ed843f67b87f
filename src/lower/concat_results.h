#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Lets the gradient of attention write its results where a loop would only copy them side by side: the gradients of q,
/// k and v into that of the product that they were parts of. The copy and the memory before it go away.
void write_into_concats(Program& program);

}  // namespace jerboa::detail
