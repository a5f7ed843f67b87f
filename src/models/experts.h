#pragma once

#include "models/decoder.h"

namespace jerboa::models {

struct ExpertsForm {
  int count = 1;            ///< experts in all
  int chosen = 1;           ///< experts per token
  int inner = 1;            ///< hidden width of each
  bool normalised = false;  ///< the weights of the chosen ones add up to 1
};

/// The module NAME of gated MLPs; each token is routed to the few that `gate.weight` scores highest. Their weights are
/// stacked, `experts.gate_up_proj` [count, 2 inner, width] and `experts.down_proj` [count, width, inner], so that the
/// products of all experts are a single op.
Tensor mixture_of_experts(const Decoder& decoder, const Config& config, const ExpertsForm& form,
                          const std::string& name, const Tensor& x);

/// The names of the stacked tensors, which checkpoints hold one by one: `experts.0.gate_proj.weight`, ….
std::vector<std::string> expert_parts(const std::string& parameter, const Shape& shape);

}  // namespace jerboa::models
