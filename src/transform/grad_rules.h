#pragma once

#include <optional>
#include <vector>

#include <jerboa/ops/ops.h>

#include "transform/cotangent.h"

namespace jerboa::detail {

/// The input of a gradient rule: a node's operands and results, and the cotangent of each result.
struct GradContext {
  const Node& node;
  std::vector<Tensor> x;     ///< operands, empty where absent
  std::vector<Tensor> y;     ///< results
  std::vector<Tensor> dys;   ///< cotangents, empty where none reaches a result
  std::vector<bool> wanted;  ///< operands whose gradient is needed

  Tensor dy;  ///< the first result's
  template <class A>
  const A& as() const {
    return node.as<A>();
  }
};

/// One gradient per operand; empty for none. The caller sums one in the broadcast shape to the operand's shape.
using Grads = std::vector<Contribution>;

Grads apply_gradient_rule(const GradContext& g);

/// For tests only: the op whose rule is deliberately wrong, to show that the tests notice.
extern std::optional<Op> mutated_gradient;

}  // namespace jerboa::detail
