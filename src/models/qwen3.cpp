#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/decoder.h"

// Qwen3: Llama's layers, with a norm of each head's queries and keys before they turn, and windows in some layers.
namespace jerboa::models {
namespace {

// The window of each layer; 0 for none.
std::vector<int> windows(const Config& config, int layers) {
  std::vector<int> list(static_cast<std::size_t>(layers), 0);
  if (!config.has("sliding_window") || !config.flag("use_sliding_window", false)) return list;
  const auto types = config.texts("layer_types");
  if (types.size() != list.size())
    throw FileError(fmt::format("{}: {} layer_types for {} layers", config.origin(), types.size(), layers));
  for (std::size_t i = 0; i < list.size(); ++i)
    if (types[i] == "sliding_attention") list[i] = config.integer("sliding_window");
  return list;
}

}  // namespace

Tensor qwen3_logits(const Config& config, const TextInputs& inputs) {
  const Decoder decoder(config, inputs);
  const int width = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
  const int kv_heads = config.integer("num_key_value_heads", heads), size = config.integer("head_dim", 128);
  const bool bias = config.flag("attention_bias", false);
  const double eps = config.number("rms_norm_eps", 1e-6);
  const RopeAttrs rope = rope_attrs(config, size);
  const auto window = windows(config, config.integer("num_hidden_layers"));
  const auto attention = [&](int layer, const std::string& name, const Tensor& x) {
    const Tensor q = split_heads(decoder.linear(name + ".q_proj", x, heads * size, bias), heads);
    const Tensor k = split_heads(decoder.linear(name + ".k_proj", x, kv_heads * size, bias), kv_heads);
    const Tensor v = split_heads(decoder.linear(name + ".v_proj", x, kv_heads * size, bias), kv_heads);
    const Tensor seen = decoder.attend(layer, decoder.rope(decoder.rms_norm(name + ".q_norm", q, eps), rope),
                                       decoder.rope(decoder.rms_norm(name + ".k_norm", k, eps), rope), v,
                                       window[static_cast<std::size_t>(layer)]);
    return decoder.linear(name + ".o_proj", merge_heads(seen), width, bias);
  };
  return llama_like_logits(decoder, config, inputs.ids, attention);
}

}  // namespace jerboa::models
