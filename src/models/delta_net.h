#pragma once

#include "models/llama_like.h"

// Shared by the models with Qwen's gated delta rule: layers with a matrix memory, and in some layers gated attention.
namespace jerboa::models {

/// The config with the defaults that all of them share.
Config delta_net_config(const Config& config);

/// The projections of a layer's input in the module NAME, [batch, time, features].
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

/// Reads projections that are stored one by one, as in Qwen3.5.
DeltaProjections separate_projections(const Decoder& decoder, const DeltaForm& form, const std::string& name,
                                      const Tensor& x);

}  // namespace jerboa::models
