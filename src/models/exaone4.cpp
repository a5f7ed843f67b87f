#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// EXAONE 4: norms after both halves of a layer and of each head's queries and keys; in models with windows, the layers
// without one have no positional encoding.
namespace jerboa::models {
namespace {

// A pattern is either a number N (every Nth layer has no window) or a repeated sequence of L (local) and G (global).
// With a sequence, the last layer is always global.
std::function<bool(int layer)> window_rule(const Config& config) {
  const std::string key = "sliding_window_pattern";
  if (!config.has("sliding_window") || !config.has(key)) return [](int) { return false; };
  if (config.is_text(key)) {
    const std::string pattern = config.text(key);
    if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos)
      config.fail(key, "is not a sequence of L and G");
    return [pattern, last = config.count("num_hidden_layers") - 1](int layer) {
      return layer != last && pattern[static_cast<std::size_t>(layer) % pattern.size()] == 'L';
    };
  }
  return [distance = config.size(key)](int layer) { return (layer + 1) % distance != 0; };
}

}  // namespace

NamedTensors exaone4_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 32, "hidden_act": "silu", "rms_norm_eps": 1e-5,
                                                "sliding_window": 4096, "sliding_window_pattern": 4})");
  allow_only(config, R"({"attention_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.head_norm = llama_norm(decoder, config);
  form.windows = layer_windows(config, sliding_layers(config, window_rule(config)));
  if (config.has("sliding_window"))
    for (std::size_t layer = 0; layer < form.ropes.size(); ++layer)
      if (form.windows[layer] == 0) form.ropes[layer].reset();
  return decoder_stack(decoder, config, post_norm_stack(decoder, config), form);
}

}  // namespace jerboa::models
