#pragma once

#include <optional>
#include <vector>

#include <jerboa/ops/ops.h>

#include "transform/cotangent.h"

namespace jerboa::detail {

/// What a gradient rule sees: a node's operands and results, and the cotangent of each result.
struct GradContext {
  const Node& node;
  std::vector<Tensor> x;     ///< operands, empty where absent
  std::vector<Tensor> y;     ///< results
  std::vector<Tensor> dys;   ///< cotangents, empty where none reaches a result
  std::vector<bool> wanted;  ///< operands whose gradient is of use

  Tensor dy;  ///< the first result's
  template <class A>
  const A& as() const {
    return node.as<A>();
  }
};

/// One gradient for each operand; empty for none. One in the broadcast shape is summed to the operand's by the caller.
using Grads = std::vector<Contribution>;

Grads apply_gradient_rule(const GradContext& g);

/// For the tests alone: the op whose rule is to be wrong, so that they can show that they notice.
extern std::optional<Op> mutated_gradient;

}  // namespace jerboa::detail
