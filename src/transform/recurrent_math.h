#pragma once

#include <vector>

#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// The rows of a state that belong to a batch, by slot; zeros if a slot is out of range. Without slots, the state
/// itself.
Tensor state_rows(const Tensor& state, const Tensor& slots);
/// The state with these rows replaced.
Tensor with_state_rows(const Tensor& state, const Tensor& slots, const Tensor& rows);

/// The results of causal_conv1d, written out in plain ops. Absent operands are empty.
struct CausalConvOperands {
  Tensor state, x, weight, positions, slots;
};
std::vector<Tensor> causal_conv1d_in_ops(const CausalConvOperands& in);

}  // namespace jerboa::detail
