#pragma once

#include <functional>
#include <vector>

#include <jerboa/models/config.h>

namespace jerboa::models {

/// Which layers have sliding-window attention, by `layer_types` or, in files without it, the family's rule. Throws
/// FileError for unknown types.
std::vector<bool> sliding_layers(const Config& config, const std::function<bool(int layer)>& rule);
/// The window of each layer: `sliding_window` for sliding layers, 0 for the others and if `sliding_window` is null.
std::vector<int> layer_windows(const Config& config, const std::vector<bool>& sliding);
/// The same with one window for all layers.
std::vector<int> equal_windows(const Config& config);
/// The same by Qwen's rule: only with `use_sliding_window`, and from layer `max_window_layers` on.
std::vector<int> qwen_windows(const Config& config);

}  // namespace jerboa::models
