#pragma once

#include "ops/case.h"

namespace jerboa::test {

/// Uses of an op in shapes that take several tiles, tasks and odd ends of vectors. Differences would take too long on
/// them: engines are held against the reference, forward and gradient.
std::vector<Case> large_cases_of(Op op);

}  // namespace jerboa::test
