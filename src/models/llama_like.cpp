#include "models/llama_like.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/allowed_settings.h"
#include "models/rope_config.h"

namespace jerboa::models {

Norm llama_norm(const Decoder& decoder, const Config& config) {
  return [&decoder, eps = norm_epsilon(config, "rms_norm_eps", 1e-6)](const std::string& name, const Tensor& x) {
    return decoder.rms_norm(name, x, eps);
  };
}

Norm centred_norm(const Decoder& decoder, const Config& config, const std::string& key, bool bias) {
  return [&decoder, eps = norm_epsilon(config, key, 1e-5), bias](const std::string& name, const Tensor& x) {
    return decoder.layer_norm(name, x, eps, bias);
  };
}

AttentionForm attention_sizes(const Config& config) {
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
  form.ropes.resize(layers);
  form.windows.assign(layers, 0);
  return form;
}

AttentionForm attention_form(const Config& config) {
  AttentionForm form = attention_sizes(config);
  form.long_rope = long_rope(config, form.head_size);
  form.ropes.assign(form.ropes.size(), form.long_rope ? RopeAttrs() : rope_attrs(config, form.head_size));
  return form;
}

void interleave_ropes(const Config& config, AttentionForm& form) {
  refuse_long_rope(config, form);
  for (auto& rope : form.ropes)
    if (rope) rope->interleaved = true;
}

void refuse_long_rope(const Config& config, const AttentionForm& form) {
  if (form.long_rope)
    throw FileError(fmt::format("{}: long_factor and short_factor, LongRoPE, are not supported in {} models",
                                config.origin(), config.text("model_type")));
}

namespace {

Tensor clipped(const AttentionForm& form, const Tensor& x) {
  return form.clip > 0 ? clamp(x, -form.clip, form.clip) : x;
}

// [batch, heads, time, size]
Tensor prepared_heads(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& norm,
                      const Tensor& projected, int heads) {
  const auto& rope = form.ropes[static_cast<std::size_t>(layer)];
  const Tensor joint = form.projection_norm ? form.projection_norm(norm, projected) : projected;
  Tensor x = split_heads(clipped(form, joint), heads);
  if (form.head_norm && !form.norm_after_rope) x = form.head_norm(norm, x);
  if (form.rope_table)
    x = decoder.rope(x, *form.rope_table);
  else if (rope)
    x = form.long_rope ? rotated(decoder, *form.long_rope, x) : decoder.rope(x, *rope);
  if (form.head_norm && form.norm_after_rope) x = form.head_norm(norm, x);
  return x;
}

}  // namespace

Tensor attend_heads(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                    const Tensor& q, const Tensor& k, const Tensor& v) {
  Tensor queries = prepared_heads(decoder, form, layer, name + "." + form.query_norm, q, form.heads);
  if (form.query_scale) queries = queries * form.query_scale;
  const Tensor keys = prepared_heads(decoder, form, layer, name + "." + form.key_norm, k, form.kv_heads);
  const Tensor values = split_heads(clipped(form, v), form.kv_heads);
  ScoreOptions scores{
      .window = form.windows[static_cast<std::size_t>(layer)], .scale = form.scale, .soft_cap = form.soft_cap};
  if (form.sinks) scores.sinks = decoder.vector(name + ".sinks", {form.heads}, 0);
  return merge_heads(decoder.attend(layer, queries, keys, values, scores));
}

Tensor attend_and_project(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                          const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor seen = attend_heads(decoder, form, layer, name, q, k, v);
  return decoder.linear(name + "." + form.output, seen, form.width, form.output_bias);
}

Tensor self_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                      const Tensor& x) {
  const Tensor q = decoder.linear(name + ".q_proj", x, form.heads * form.head_size, form.bias);
  const Tensor k = decoder.linear(name + ".k_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor v = decoder.linear(name + ".v_proj", x, form.kv_heads * form.head_size, form.bias);
  return attend_and_project(decoder, form, layer, name, q, k, v);
}

StackForm stack_form(const Decoder& decoder, const Config& config) {
  allow_only(config, R"({"per_layer_config": {}})");
  StackForm form;
  form.vocabulary = config.size("vocab_size");
  form.width = config.size("hidden_size");
  form.layers = config.count("num_hidden_layers");
  form.tied = config.flag("tie_word_embeddings", false);
  form.norm = llama_norm(decoder, config);
  return form;
}

StackForm post_norm_stack(const Decoder& decoder, const Config& config) {
  StackForm form = stack_form(decoder, config);
  form.before_attention = form.before_mlp = "";
  form.after_attention = "post_attention_layernorm";
  form.after_mlp = "post_feedforward_layernorm";
  return form;
}

namespace {

Tensor scaled(const Tensor& x, double scale) { return scale == 1 ? x : x * scale; }

Tensor normed(const StackForm& form, const std::string& layer, const std::string& name, const Tensor& x) {
  return name.empty() ? x : form.norm(layer + "." + name, x);
}

Tensor layer_of_stack(const StackForm& form, int layer, const Tensor& x, const Sublayer& attention,
                      const Sublayer& mlp) {
  const std::string name = fmt::format("{}{}", form.prefix, layer);
  const Tensor read = normed(form, name, form.before_attention, x);
  const Tensor seen = normed(form, name, form.after_attention, attention(layer, name + "." + form.attention, read));
  const Tensor middle = x + scaled(seen, form.residual_scale);
  if (!mlp) return middle;
  const Tensor& before = form.parallel ? (form.before_mlp.empty() ? read : x) : middle;
  const Tensor more = mlp(layer, name + "." + form.mlp, normed(form, name, form.before_mlp, before));
  return middle + scaled(normed(form, name, form.after_mlp, more), form.residual_scale);
}

}  // namespace

NamedTensors decoder_stack(const Decoder& decoder, const StackForm& form, const Sublayer& attention,
                           const Sublayer& mlp) {
  Tensor x = scaled(decoder.embedding(form.tokens, decoder.ids(), form.vocabulary, form.width), form.embedding_scale);
  if (!form.embedding_norm.empty()) x = form.norm(form.embedding_norm, x);
  for (int layer = 0; layer < form.layers; ++layer) x = layer_of_stack(form, layer, x, attention, mlp);
  NamedTensors results =
      decoder.results(form.tied ? form.tokens : form.head, form.norm(form.final_norm, x), form.vocabulary);
  Tensor& logits = results["logits"];
  if (form.head_bias) logits = logits + decoder.vector(form.head + ".bias", {form.vocabulary}, 0);
  logits = scaled(logits, form.logit_scale);
  if (form.logit_cap > 0) logits = tanh(logits / form.logit_cap) * form.logit_cap;
  return results;
}

NamedTensors decoder_stack(const Decoder& decoder, const StackForm& form, const AttentionForm& attention,
                           const Sublayer& mlp) {
  return decoder_stack(
      decoder, form,
      [&](int layer, const std::string& name, const Tensor& x) {
        return self_attention(decoder, attention, layer, name, x);
      },
      mlp);
}

NamedTensors decoder_stack(const Decoder& decoder, const Config& config, const StackForm& form,
                           const AttentionForm& attention) {
  return decoder_stack(decoder, form, attention, [&](int, const std::string& name, const Tensor& x) {
    return gated_mlp(decoder, config, name, x);
  });
}

NamedTensors llama_like(const Decoder& decoder, const Config& config, const Sublayer& attention, const Sublayer& mlp) {
  return decoder_stack(decoder, stack_form(decoder, config), attention, mlp);
}

NamedTensors llama_like(const Decoder& decoder, const Config& config, const AttentionForm& form) {
  return decoder_stack(decoder, config, stack_form(decoder, config), form);
}

}  // namespace jerboa::models
