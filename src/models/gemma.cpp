#include "models/gemma.h"

#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::models {
namespace {

Tensor layer_output(const Decoder& decoder, const Config& config, const AttentionForm& form, int layer,
                    const Tensor& x) {
  const std::string name = fmt::format("model.layers.{}", layer);
  const Norm norm = gemma_norm(decoder, config);
  const Tensor seen = self_attention(decoder, form, layer, name + ".self_attn", norm(name + ".input_layernorm", x));
  const Tensor middle = x + norm(name + ".post_attention_layernorm", seen);
  const Tensor more =
      gated_mlp(decoder, config, name + ".mlp", norm(name + ".pre_feedforward_layernorm", middle), "hidden_activation");
  return middle + norm(name + ".post_feedforward_layernorm", more);
}

Tensor capped(const Config& config, const Tensor& logits) {
  if (!config.has("final_logit_softcapping")) return logits;
  const double cap = config.positive("final_logit_softcapping");
  return tanh(logits / cap) * cap;
}

}  // namespace

Config gemma_config(const Config& config) {
  return config.with_defaults(R"({"num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
                                  "query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": true})");
}

Norm gemma_norm(const Decoder& decoder, const Config& config) {
  return [&decoder, eps = norm_epsilon(config, "rms_norm_eps", 1e-6)](const std::string& name, const Tensor& x) {
    return decoder.rms_norm_around_one(name, x, eps);
  };
}

AttentionForm gemma_attention_form(const Config& config) {
  if (config.flag("use_bidirectional_attention", false))
    throw FileError(fmt::format("{}: use_bidirectional_attention is not supported: the model would not be a decoder",
                                config.origin()));
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar"));
  if (config.has("attn_logit_softcapping")) form.soft_cap = config.positive("attn_logit_softcapping");
  return form;
}

NamedTensors gemma_decoder(const Decoder& decoder, const Config& config, const AttentionForm& form) {
  const int vocabulary = config.size("vocab_size"), width = form.width;
  const std::string tokens = "model.embed_tokens";
  Tensor x = decoder.embedding(tokens, decoder.ids(), vocabulary, width) * std::sqrt(static_cast<double>(width));
  for (int layer = 0; layer < config.count("num_hidden_layers"); ++layer)
    x = layer_output(decoder, config, form, layer, x);
  x = gemma_norm(decoder, config)("model.norm", x);
  NamedTensors results = decoder.results(config.flag("tie_word_embeddings") ? tokens : "lm_head", x, vocabulary);
  results["logits"] = capped(config, results["logits"]);
  return results;
}

}  // namespace jerboa::models
