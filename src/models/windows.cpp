#include "models/windows.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::models {
namespace {

bool slides(const Config& config, const std::string& type) {
  if (type != "sliding_attention" && type != "full_attention")
    throw FileError(fmt::format("{}: unknown entry {} in layer_types", config.origin(), in_quotes(type)));
  return type == "sliding_attention";
}

std::vector<bool> layers_by(const Config& config, const std::function<bool(int layer)>& rule) {
  std::vector<bool> sliding;
  for (int layer = 0; layer < config.count("num_hidden_layers"); ++layer) sliding.push_back(rule(layer));
  return sliding;
}

}  // namespace

std::vector<bool> sliding_layers(const Config& config, const std::function<bool(int layer)>& rule) {
  if (!config.has("layer_types")) return layers_by(config, rule);
  const auto types = config.texts("layer_types");
  const int layers = config.count("num_hidden_layers");
  if (types.size() != static_cast<std::size_t>(layers))
    throw FileError(fmt::format("{}: {} layer_types for {} layers", config.origin(), types.size(), layers));
  return layers_by(config, [&](int layer) { return slides(config, types[static_cast<std::size_t>(layer)]); });
}

std::vector<int> layer_windows(const Config& config, const std::vector<bool>& sliding) {
  const int window = config.size("sliding_window", 0);
  std::vector<int> windows;
  for (const bool slides : sliding) windows.push_back(slides ? window : 0);
  return windows;
}

std::vector<int> equal_windows(const Config& config) {
  return layer_windows(config, layers_by(config, [](int) { return true; }));
}

std::vector<int> qwen_windows(const Config& config) {
  const Config full = config.with_defaults(R"({"sliding_window": 4096, "max_window_layers": 28})");
  if (!full.flag("use_sliding_window", false)) return layer_windows(full, layers_by(full, [](int) { return false; }));
  const int first = full.integer("max_window_layers");
  return layer_windows(full, sliding_layers(full, [&](int layer) { return layer >= first; }));
}

}  // namespace jerboa::models
