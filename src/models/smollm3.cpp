#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// SmolLM3: Llama's layers, some of which have no rotary embedding.
namespace jerboa::models {
namespace {

// Despite its name, `no_rope_layers` has a 1 for each layer that does have rotary positions.
std::vector<bool> rotary_layers(const Config& config) {
  const int layers = config.count("num_hidden_layers"), interval = config.size("no_rope_layer_interval");
  const bool listed = config.has("no_rope_layers");
  const auto list = listed ? config.integers("no_rope_layers") : std::vector<int>();
  if (listed && list.size() < static_cast<std::size_t>(layers))
    throw FileError(fmt::format("{}: {} no_rope_layers for {} layers", config.origin(), list.size(), layers));
  std::vector<bool> rotary;
  for (int layer = 0; layer < layers; ++layer)
    rotary.push_back(listed ? list[static_cast<std::size_t>(layer)] != 0 : (layer + 1) % interval != 0);
  return rotary;
}

// If a file asks for windows without saying in which layers, those without rotary positions get them.
std::vector<int> windows(const Config& config, const std::vector<bool>& rotary) {
  if (!config.flag("use_sliding_window", false)) return std::vector<int>(rotary.size(), 0);
  return layer_windows(config,
                       sliding_layers(config, [&](int layer) { return !rotary[static_cast<std::size_t>(layer)]; }));
}

}  // namespace

NamedTensors smollm3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 4, "no_rope_layer_interval": 4,
                                                "rope_theta": 2000000, "tie_word_embeddings": true})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  const auto rotary = rotary_layers(config);
  form.windows = windows(config, rotary);
  for (std::size_t layer = 0; layer < rotary.size(); ++layer)
    if (!rotary[layer]) form.ropes[layer].reset();
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
