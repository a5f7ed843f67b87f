#pragma once

#include <jerboa/ir/op.h>

namespace jerboa::detail {

/// Whether an op of this lowering is a kernel of its own on whole tensors: each engine then has an entry for it.
constexpr bool works_on_whole_tensors(Lowering lowering) {
  return lowering == Lowering::Whole || lowering == Lowering::Scan || lowering == Lowering::Sort ||
         lowering == Lowering::GroupedMatmul || lowering == Lowering::Conv || lowering == Lowering::Pool ||
         lowering == Lowering::Attention || lowering == Lowering::Scatter;
}

}  // namespace jerboa::detail
