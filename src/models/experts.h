#pragma once

#include "models/decoder.h"

namespace jerboa::models {

struct ExpertsForm {
  int count = 1;            ///< experts there are
  int chosen = 1;           ///< experts that a token goes through
  int inner = 1;            ///< width inside each
  bool normalised = false;  ///< the weights of the chosen ones add up to 1
};

/// The module NAME of gated MLPs, of which each token goes through those few that `gate.weight` scores highest. Their
/// weights are stacked, `experts.gate_up_proj` [count, 2 inner, width] and `experts.down_proj` [count, width, inner],
/// so that products of all experts are one.
Tensor mixture_of_experts(const Decoder& decoder, const Config& config, const ExpertsForm& form,
                          const std::string& name, const Tensor& x);

/// The names of what is stacked, which checkpoints hold one by one: `experts.0.gate_proj.weight`, ….
std::vector<std::string> expert_parts(const std::string& parameter, const Shape& shape);

}  // namespace jerboa::models
