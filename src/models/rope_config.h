#pragma once

#include <jerboa/ir/attrs.h>
#include <jerboa/ir/rope.h>
#include <jerboa/models/config.h>

namespace jerboa::models {

/// The rotary embedding that `rope_parameters` or, in older files, `rope_theta` and `rope_scaling` describe.
RopeAttrs rope_attrs(const Config& config, int head_size);
/// The same from a nested object, which inherits values for all layers from the config.
RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size);
/// The same, ignoring scaling.
RopeAttrs unscaled_rope(const Config& config, const Config& parameters, int head_size);

/// The same as frequencies. Covers every type that rope_attrs knows and two that RopeAttrs cannot express: YaRN with a
/// ramp between fractional pairs, and `proportional`, which leaves the slowest pairs unrotated.
RopeTable rope_frequencies(const Config& config, const Config& parameters, int head_size);
RopeTable rope_frequencies(const Config& config, int head_size);

}  // namespace jerboa::models
