#include "ops/cases/blocks.h"
#include "ops/cases/elementwise.h"
#include "ops/cases/indexing.h"
#include "ops/cases/linear.h"
#include "ops/cases/recurrent.h"
#include "ops/cases/reductions.h"
#include "ops/cases/shape.h"

namespace jerboa::test {
namespace {

template <Op op, Lowering lowering>
std::vector<Case> row() {
  if constexpr (lowering == Lowering::Leaf)
    return {};
  else
    return cases<op>();
}

}  // namespace

const std::vector<Case>& cases_of(Op op) {
  static const std::vector<std::vector<Case>> table{
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) row<Op::name, Lowering::lowering>(),
#include <jerboa/ir/ops.def>
#undef OP
  };
  return table[static_cast<std::size_t>(op)];
}

}  // namespace jerboa::test
