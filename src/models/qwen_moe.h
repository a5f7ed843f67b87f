#pragma once

#include "models/experts.h"

// Shared by Qwen's mixtures of experts.
namespace jerboa::models {

/// The experts of the config; the weights of the chosen ones add up to 1 if it sets `norm_topk_prob`.
ExpertsForm qwen_experts(const Config& config);
/// Which layers have experts: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`.
std::function<bool(int layer)> qwen_sparse_layers(const Config& config);
/// The module NAME: a mixture of experts, and an expert `shared_expert` that every token uses, scaled by
/// `shared_expert_gate`.
Tensor qwen_shared_mixture(const Decoder& decoder, const Config& config, const ExpertsForm& form,
                           const std::string& name, const Tensor& x);

}  // namespace jerboa::models
