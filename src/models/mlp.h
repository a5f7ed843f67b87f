#pragma once

#include <string>

#include "models/decoder.h"

// The families' MLPs. The module NAME has the projections; the config names the activation.
namespace jerboa::models {

/// With gate_proj, up_proj and down_proj; the config names its activation under `key`.
Tensor gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x,
                 const std::string& key = "hidden_act");
/// The same with the given hidden width, and without biases.
Tensor gated_mlp_of(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x, int inner,
                    const std::string& key = "hidden_act");
/// Like gated_mlp, but with gate and up in one product, gate_up_proj.
Tensor fused_gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x);

/// An MLP without a gate.
struct PlainMlp {
  std::string up = "up_proj", down = "down_proj";  ///< the projections' names
  bool bias = false;
  int inner = 0;  ///< 0: the config's intermediate_size
  std::string activation = "hidden_act";
};
Tensor plain_mlp(const Decoder& decoder, const Config& config, const PlainMlp& form, const std::string& name,
                 const Tensor& x);

}  // namespace jerboa::models
