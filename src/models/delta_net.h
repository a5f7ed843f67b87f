#pragma once

#include "models/llama_like.h"

// What the models with Qwen's gated delta rule share: layers with a matrix memory, and attention with gates in some of
// them.
namespace jerboa::models {

/// Defaults of all of them.
Config delta_net_config(const Config& config);

/// What the input's projections of the module NAME give: [batch, time, features].
struct DeltaProjections {
  Tensor mixed;  ///< queries, keys and values, before their convolution
  Tensor gate;
  Tensor strength, step;  ///< one per head
};
struct DeltaForm {
  int width = 0, key_heads = 0, value_heads = 0, key_size = 0, value_size = 0, taps = 4;
  std::function<DeltaProjections(const std::string& name, const Tensor& x)> project;
};
DeltaForm delta_form(const Config& config);

/// The whole decoder.
NamedTensors delta_net_stack(const Decoder& decoder, const Config& config, const DeltaForm& form, const Sublayer& mlp);

/// Projections that are stored one by one, as in Qwen3.5.
DeltaProjections separate_projections(const Decoder& decoder, const DeltaForm& form, const std::string& name,
                                      const Tensor& x);

}  // namespace jerboa::models
