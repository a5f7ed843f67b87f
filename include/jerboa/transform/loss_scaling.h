#pragma once

#include <vector>

#include <jerboa/ir/reserved_names.h>
#include <jerboa/transform/grad.h>

namespace jerboa {

/// How the loss is scaled in mixed precision, so that small gradients do not vanish in f16. If a gradient overflows,
/// the update is skipped and the scale halved; after a number of updates without an overflow it is doubled. All of this
/// happens in the graph. Scales are at least the smallest normal f32 and at most `largest_loss_scale`.
struct LossScaling {
  double initial = 65536;
  int growth_interval = 2000;
  double least = 1;
};

/// The largest power of two whose inverse GPUs do not flush to zero, 2^126. A scale stops growing there.
inline constexpr double largest_loss_scale = 0x1p126;
/// Whether a loss can be multiplied by this scale, and its gradients by the inverse.
bool is_loss_scale(double scale);

/// The scale of this step's loss: an f32 scalar. Throws UsageError that names the option that is out of range.
Tensor loss_scale(const LossScaling& scaling);
/// Whether every gradient is finite, by bit pattern.
Tensor are_finite(const std::vector<ParamGrad>& grads);
/// The next step's scale.
void update_loss_scale(const Tensor& finite, const LossScaling& scaling);
/// Makes the updates of the traced graph, starting at index `first`, conditional on a boolean scalar.
void update_only_if(const Tensor& condition, std::size_t first);

}  // namespace jerboa
