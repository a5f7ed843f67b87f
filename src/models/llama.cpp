#include "models/decoder.h"

// Llama 1 to 3: rotary positions and fewer key heads than query heads.
namespace jerboa::models {

Tensor llama_logits(const Config& config, const TextInputs& inputs) {
  const Decoder decoder(config, inputs);
  const int width = config.integer("hidden_size"), heads = config.integer("num_attention_heads");
  const int kv_heads = config.integer("num_key_value_heads", heads), size = config.integer("head_dim", width / heads);
  const bool bias = config.flag("attention_bias", false);
  const RopeAttrs rope = rope_attrs(config, size);
  const auto attention = [&](int layer, const std::string& name, const Tensor& x) {
    const Tensor q = split_heads(decoder.linear(name + ".q_proj", x, heads * size, bias), heads);
    const Tensor k = split_heads(decoder.linear(name + ".k_proj", x, kv_heads * size, bias), kv_heads);
    const Tensor v = split_heads(decoder.linear(name + ".v_proj", x, kv_heads * size, bias), kv_heads);
    const Tensor seen = decoder.attend(layer, decoder.rope(q, rope), decoder.rope(k, rope), v);
    return decoder.linear(name + ".o_proj", merge_heads(seen), width, bias);
  };
  return llama_like_logits(decoder, config, inputs.ids, attention);
}

}  // namespace jerboa::models
