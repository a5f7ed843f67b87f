#pragma once

#include <jerboa/ir/attrs.h>
#include <jerboa/models/config.h>

namespace jerboa::models {

/// Rotary embedding as `rope_parameters`, or in older files `rope_theta` and `rope_scaling`, describe it.
RopeAttrs rope_attrs(const Config& config, int head_size);
/// The same from a nested object, which inherits the config's values for all layers.
RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size);

}  // namespace jerboa::models
