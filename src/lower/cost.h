#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The multiplications and additions of a kernel that multiplies matrices, convolves or attends, counted as two
/// operations each, from which its rate is computed. 0 for all other kernels, which are memory-bound. Causal attention
/// counts only the scores that it needs, and its gradient five products, whatever a kernel recomputes.
Dim operations_of(const KernelSpec& kernel);

}  // namespace jerboa::detail
