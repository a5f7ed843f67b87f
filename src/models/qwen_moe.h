#pragma once

#include "models/experts.h"

// What Qwen's mixtures of experts share.
namespace jerboa::models {

/// The config's experts, with weights of the chosen ones that add up to 1 if `norm_topk_prob` says so.
ExpertsForm qwen_experts(const Config& config);
/// Which layers have experts: every `decoder_sparse_step`-th, but for those in `mlp_only_layers`.
std::function<bool(int layer)> qwen_sparse_layers(const Config& config);
/// The module NAME: a mixture of experts, and an expert `shared_expert` for every token, weighed by
/// `shared_expert_gate`.
Tensor qwen_shared_mixture(const Decoder& decoder, const Config& config, const ExpertsForm& form,
                           const std::string& name, const Tensor& x);

}  // namespace jerboa::models
