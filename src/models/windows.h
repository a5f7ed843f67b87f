#pragma once

#include <functional>
#include <vector>

#include <jerboa/models/config.h>

namespace jerboa::models {

/// Which layers look back no further than a window: those that `layer_types` names, or in files without it those that
/// the family's rule does. Throws FileError for types that are not known.
std::vector<bool> sliding_layers(const Config& config, const std::function<bool(int layer)>& rule);
/// The window of each layer: `sliding_window` of those that slide, 0 of the others and where it is null.
std::vector<int> layer_windows(const Config& config, const std::vector<bool>& sliding);
/// The same where one window holds for all layers.
std::vector<int> equal_windows(const Config& config);
/// The same as Qwen's files say it: only with `use_sliding_window`, and by rule from the layer `max_window_layers` on.
std::vector<int> qwen_windows(const Config& config);

}  // namespace jerboa::models
