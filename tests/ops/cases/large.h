#pragma once

#include "ops/case.h"

namespace jerboa::test {

/// Uses of an op in shapes that take several tiles, tasks and odd ends of vectors. Finite differences would take
/// too long on them: engines are compared with the reference, forward and gradient.
std::vector<Case> large_cases_of(Op op);

}  // namespace jerboa::test
