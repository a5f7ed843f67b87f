#pragma once

#include "models/decoder.h"

// What recurrent layers share. States go through the decoder's caches.
namespace jerboa::models {

/// The depthwise convolution NAME of x [batch, time, channels] with the last `taps` tokens, whose weight files hold as
/// [channels, 1, taps].
Tensor causal_convolution(const Decoder& decoder, int layer, const std::string& name, const Tensor& x, int taps,
                          bool bias);

/// What tokens put into a matrix memory and read from it: q and k [batch, time, groups, key size], v [batch, time,
/// heads, value size], log_decay and beta [batch, time, heads].
struct MemoryAccess {
  Tensor q, k, v, log_decay;
  Tensor beta = {};
};
/// What the tokens read from the layer's memory, [batch, time, heads, value size].
Tensor read_memory(const Decoder& decoder, int layer, const MemoryAccess& access);

/// Two kinds of layers, as `layer_types` says or by the family's rule: true for those that attend. Both the names of
/// today and those of older files are known.
std::vector<bool> attending_layers(const Config& config, const std::function<bool(int layer)>& rule,
                                   const std::string& key = "layer_types");

}  // namespace jerboa::models
