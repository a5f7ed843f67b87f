#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Lets the gradient of attention write its results directly where a loop would only concatenate them: the gradients of
/// q, k and v into that of the product that they were slices of. The copy and its source memory go away.
void write_into_concats(Program& program);

}  // namespace jerboa::detail
