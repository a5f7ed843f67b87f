#pragma once

#include <jerboa/ir/attrs.h>
#include <jerboa/ir/rope.h>
#include <jerboa/models/config.h>

namespace jerboa::models {

/// Rotary embedding as `rope_parameters`, or in older files `rope_theta` and `rope_scaling`, describe it.
RopeAttrs rope_attrs(const Config& config, int head_size);
/// The same from a nested object, which inherits the config's values for all layers.
RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size);
/// The same without scaling.
RopeAttrs unscaled_rope(const Config& config, const Config& parameters, int head_size);

/// The same as frequencies, for every type that rope_attrs knows and for those that RopeAttrs cannot express: YaRN
/// whose ramp does not begin and end at whole pairs, and `proportional`, which leaves the slowest pairs as they are.
RopeTable rope_frequencies(const Config& config, const Config& parameters, int head_size);
RopeTable rope_frequencies(const Config& config, int head_size);

}  // namespace jerboa::models
