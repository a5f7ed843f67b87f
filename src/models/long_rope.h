#pragma once

#include <optional>

#include <jerboa/ir/rope.h>

#include "models/decoder.h"

namespace jerboa::models {

/// LongRoPE: rotary embedding with one list of frequencies for texts within the original context and another for longer
/// ones.
struct LongRope {
  RopeTable within, beyond;
  int original_context = 0;
};

/// As `rope_parameters`, or in older files `rope_scaling`, describe it; nothing if they describe another kind of rotary
/// embedding. What counts is that there are factors: older files call it su or even yarn.
std::optional<LongRope> long_rope(const Config& config, int head_size);

/// Rotates heads [batch, heads, time, size]. Keys in a cache have been rotated once and for all, so that a graph with
/// caches takes the frequencies for the longest text that they are used for (CacheOptions::context), and one without
/// those for the longest text of the run.
Tensor rotated(const Decoder& decoder, const LongRope& rope, const Tensor& heads);

}  // namespace jerboa::models
