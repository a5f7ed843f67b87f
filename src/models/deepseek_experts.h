#pragma once

#include "models/experts.h"

// The mixture of experts of DeepSeek-V3, which others have adopted.
namespace jerboa::models {

/// Sigmoid scores with a correction; experts come in groups, of which a token uses a few.
ExpertsForm deepseek_experts(const Config& config);
/// The module NAME with a mixture of this form and a gated MLP `shared_experts` that every token uses.
Tensor deepseek_mixture(const Decoder& decoder, const Config& config, const ExpertsForm& form, const std::string& name,
                        const Tensor& x);
/// A gated MLP in the first layers, and a mixture after `first_k_dense_replace` of them.
Tensor deepseek_mlp(const Decoder& decoder, const Config& config, const ExpertsForm& form, int layer,
                    const std::string& name, const Tensor& x);

}  // namespace jerboa::models
