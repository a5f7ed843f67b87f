#pragma once

#include "models/llama_like.h"

// Shared by LFM2 and LFM2-MoE.
namespace jerboa::models {

Config lfm2_config(const Config& config);
/// The whole decoder, with these feed-forward modules.
NamedTensors lfm2_stack(const Decoder& decoder, const Config& config, const Sublayer& feed_forward);
/// The module NAME with w1, w2 and w3.
Tensor lfm2_mlp(const Decoder& decoder, int inner, const std::string& name, const Tensor& x);

}  // namespace jerboa::models
