#pragma once

#include "ops/case.h"

namespace jerboa::test {

/// The sample cases of one op; a missing one is a compile error that names the op.
template <Op op>
std::vector<Case> cases() = delete;

}  // namespace jerboa::test

/// CASES(add) { return {…}; }
#define CASES(op) \
  template <>     \
  inline std::vector<Case> cases<Op::op>()
