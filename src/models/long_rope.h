#pragma once

#include <optional>

#include <jerboa/ir/rope.h>

#include "models/decoder.h"

namespace jerboa::models {

/// LongRoPE: a rotary embedding with one list of frequencies for sequences within the original context, and another for
/// longer ones.
struct LongRope {
  RopeTable within, beyond;
  int original_context = 0;
};

/// Read from `rope_parameters` or, in older files, `rope_scaling`; empty for another kind of rotary embedding. The
/// lists of factors decide, not the name, since older files call it su or even yarn.
std::optional<LongRope> long_rope(const Config& config, int head_size);

/// Rotates heads [batch, heads, time, size]. Keys in a cache stay as they were rotated, so a graph with caches always
/// uses the frequencies of the longest sequence that the caches allow (CacheOptions::context). A graph without caches
/// uses those of the longest sequence in the run.
Tensor rotated(const Decoder& decoder, const LongRope& rope, const Tensor& heads);

}  // namespace jerboa::models
