#pragma once

#include "models/decoder.h"

// Shared by recurrent layers. Their states go through the decoder's caches.
namespace jerboa::models {

/// The depthwise convolution NAME of x [batch, time, channels] over the last `taps` tokens. Files hold its weight as
/// [channels, 1, taps].
Tensor causal_convolution(const Decoder& decoder, int layer, const std::string& name, const Tensor& x, int taps,
                          bool bias);

/// The operands of linear attention: q and k [batch, time, groups, key size], v [batch, time, heads, value size],
/// log_decay and beta [batch, time, heads].
struct MemoryAccess {
  Tensor q, k, v, log_decay;
  Tensor beta = {};
};
/// Linear attention over the layer's memory; returns [batch, time, heads, value size].
Tensor read_memory(const Decoder& decoder, int layer, const MemoryAccess& access);

/// Whether each layer has attention (true) or is recurrent, by `layer_types` or else the family's rule. Knows the
/// current names of the types and older ones.
std::vector<bool> attending_layers(const Config& config, const std::function<bool(int layer)>& rule,
                                   const std::string& key = "layer_types");

}  // namespace jerboa::models
