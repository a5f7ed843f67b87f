#pragma once

#include <jerboa/frontend/compile.h>

#include "ops/sample.h"

namespace jerboa::test {

/// A product of f16, and the gradients of both operands.
inline Sample product_of_halves(const Case& one) {
  Sample result = with_gradients(*first_order(Op::matmul, one, DType::f16));
  trace_into(result.graph, [&] {
    for (const Node& node : std::vector<Node>(result.graph.nodes))
      if (node.op == Op::matmul && result.graph.find("out") == no_tensor) {
        output("out", Tensor(result.graph.identity(), node.outputs[0]));
        break;
      }
  });
  return result;
}

/// The error of a result that is rounded to f16 once.
inline constexpr Tolerance tolerance_of_halves{6e-4, 1e-4, 3e-4};

}  // namespace jerboa::test
