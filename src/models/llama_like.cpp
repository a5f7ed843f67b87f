#include "models/llama_like.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/rope_config.h"

namespace jerboa::models {

Norm llama_norm(const Decoder& decoder, const Config& config) {
  return [&decoder, eps = norm_epsilon(config, "rms_norm_eps", 1e-6)](const std::string& name, const Tensor& x) {
    return decoder.rms_norm(name, x, eps);
  };
}

AttentionForm attention_form(const Config& config) {
  AttentionForm form;
  form.width = config.size("hidden_size");
  form.heads = config.size("num_attention_heads");
  form.kv_heads = config.size("num_key_value_heads", form.heads);
  if (form.heads % form.kv_heads != 0)
    config.fail("num_key_value_heads", fmt::format("does not divide num_attention_heads {}", form.heads));
  if (!config.has("head_dim") && form.width % form.heads != 0)
    config.fail("num_attention_heads", fmt::format("does not divide hidden_size {}", form.width));
  form.head_size = config.size("head_dim", form.width / form.heads);
  if (std::int64_t{form.heads} * form.head_size > Config::largest_size)
    config.fail("num_attention_heads", fmt::format("is too many heads of {} features each", form.head_size));
  const auto layers = static_cast<std::size_t>(config.count("num_hidden_layers"));
  form.ropes.assign(layers, rope_attrs(config, form.head_size));
  form.windows.assign(layers, 0);
  return form;
}

Tensor attend_and_project(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                          const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto index = static_cast<std::size_t>(layer);
  const auto clipped = [&](const Tensor& x) { return form.clip > 0 ? clamp(x, -form.clip, form.clip) : x; };
  const auto prepare = [&](const std::string& norm, const Tensor& x, int count) {
    const Tensor joint = clipped(form.projection_norm ? form.projection_norm(name + norm, x) : x);
    Tensor heads = split_heads(joint, count);
    if (form.head_norm) heads = form.head_norm(name + norm, heads);
    return form.ropes[index] ? decoder.rope(heads, *form.ropes[index]) : heads;
  };
  const Tensor queries = prepare(".q_norm", q, form.heads);
  const Tensor keys = prepare(".k_norm", k, form.kv_heads);
  const Tensor values = split_heads(clipped(v), form.kv_heads);
  ScoreOptions scores{.window = form.windows[index], .scale = form.scale, .soft_cap = form.soft_cap};
  if (form.sinks) scores.sinks = decoder.vector(name + ".sinks", {form.heads}, 0);
  const Tensor seen = decoder.attend(layer, queries, keys, values, scores);
  return decoder.linear(name + ".o_proj", merge_heads(seen), form.width, form.output_bias);
}

Tensor self_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                      const Tensor& x) {
  const Tensor q = decoder.linear(name + ".q_proj", x, form.heads * form.head_size, form.bias);
  const Tensor k = decoder.linear(name + ".k_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor v = decoder.linear(name + ".v_proj", x, form.kv_heads * form.head_size, form.bias);
  return attend_and_project(decoder, form, layer, name, q, k, v);
}

Tensor gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x,
                 const std::string& key) {
  const int inner = config.size("intermediate_size");
  const bool bias = config.flag("mlp_bias", false);
  const Tensor gate = activation(config, key, decoder.linear(name + ".gate_proj", x, inner, bias));
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, bias);
  return decoder.linear(name + ".down_proj", gate * up, config.size("hidden_size"), bias);
}

Tensor gated_mlp_of(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x, int inner,
                    const std::string& key) {
  const Tensor gate = activation(config, key, decoder.linear(name + ".gate_proj", x, inner, false));
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, false);
  return decoder.linear(name + ".down_proj", gate * up, static_cast<int>(x.dim(-1).value()), false);
}

NamedTensors llama_like(const Decoder& decoder, const Config& config, const Sublayer& attention, const Sublayer& mlp) {
  const int vocabulary = config.size("vocab_size");
  const Norm norm = llama_norm(decoder, config);
  const std::string tokens = "model.embed_tokens";
  Tensor x = decoder.embedding(tokens, decoder.ids(), vocabulary, config.size("hidden_size"));
  for (int layer = 0; layer < config.count("num_hidden_layers"); ++layer) {
    const std::string name = fmt::format("model.layers.{}", layer);
    x = x + attention(layer, name + ".self_attn", norm(name + ".input_layernorm", x));
    x = x + mlp(layer, name + ".mlp", norm(name + ".post_attention_layernorm", x));
  }
  const bool tied = config.flag("tie_word_embeddings", false);
  return decoder.results(tied ? tokens : "lm_head", norm("model.norm", x), vocabulary);
}

NamedTensors llama_like(const Decoder& decoder, const Config& config, const AttentionForm& form) {
  return llama_like(
      decoder, config,
      [&](int layer, const std::string& name, const Tensor& x) {
        return self_attention(decoder, form, layer, name, x);
      },
      [&](int, const std::string& name, const Tensor& x) { return gated_mlp(decoder, config, name, x); });
}

}  // namespace jerboa::models
