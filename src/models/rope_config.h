#pragma once

#include <jerboa/ir/attrs.h>
#include <jerboa/models/config.h>

namespace jerboa::models {

/// Rotary embedding as `rope_parameters`, or in older files `rope_theta` and `rope_scaling`, describe it.
RopeAttrs rope_attrs(const Config& config, int head_size);
/// The same as an object of the config describes it, which may leave to the config what concerns every layer.
RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size);

}  // namespace jerboa::models
