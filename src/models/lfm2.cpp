#include "models/lfm2.h"

#include <algorithm>
#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/recurrent.h"

// LFM2: gated short convolutions, with attention in some layers.
namespace jerboa::models {
namespace {

int lfm2_inner(const Config& config) {
  const int inner = config.size(config.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size");
  if (!config.flag("block_auto_adjust_ff_dim")) return inner;
  const int adjusted = static_cast<int>(2 * std::int64_t{inner} / 3);
  if (!config.has("block_ffn_dim_multiplier")) return adjusted;
  const int multiplied = static_cast<int>(config.positive("block_ffn_dim_multiplier") * adjusted);
  const int step = config.size("block_multiple_of");
  return step * ((multiplied + step - 1) / step);
}

Tensor short_convolution(const Decoder& decoder, const Config& config, int layer, const std::string& name,
                         const Tensor& x) {
  const int width = config.size("hidden_size");
  const bool bias = config.flag("conv_bias");
  const auto [before, after, values] = split<3>(decoder.linear(name + ".in_proj", x, 3 * width, bias));
  const Tensor mixed =
      causal_convolution(decoder, layer, name + ".conv", before * values, config.size("conv_L_cache"), bias);
  return decoder.linear(name + ".out_proj", after * mixed, width, bias);
}

}  // namespace

Config lfm2_config(const Config& given) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000,
      "hidden_act": "silu", "conv_bias": false, "conv_L_cache": 3})");
  // The models' own files have another name for it.
  return config.with_defaults(config.flag("tie_embedding", true) ? R"({"tie_word_embeddings": true})"
                                                                 : R"({"tie_word_embeddings": false})");
}

NamedTensors lfm2_stack(const Decoder& decoder, const Config& config, const Sublayer& feed_forward) {
  allow_only(config,
             R"({"block_use_swiglu": true, "use_pos_enc": true, "hidden_act": "silu", "attention_bias": false})");
  const auto listed = config.has("full_attn_idxs") ? config.integers("full_attn_idxs") : std::vector<int>();
  const auto attends = attending_layers(config, [&](int layer) {
    return !config.has("full_attn_idxs") || std::find(listed.begin(), listed.end(), layer) != listed.end();
  });
  StackForm stack = stack_form(decoder, config);
  stack.norm = [&decoder, eps = norm_epsilon(config, "norm_eps", 1e-5)](const std::string& name, const Tensor& x) {
    return decoder.rms_norm(name, x, eps);
  };
  AttentionForm attention = attention_form(config);
  attention.head_norm = stack.norm;
  attention.query_norm = "q_layernorm";
  attention.key_norm = "k_layernorm";
  attention.output = "out_proj";
  stack.final_norm = "model.embedding_norm";
  stack.before_attention = "operator_norm";
  stack.before_mlp = "ffn_norm";
  stack.mlp = "feed_forward";
  const Sublayer mixer = [&](int layer, const std::string& name, const Tensor& x) {
    if (attends[static_cast<std::size_t>(layer)]) return self_attention(decoder, attention, layer, name, x);
    return short_convolution(decoder, config, layer, fmt::format("model.layers.{}.conv", layer), x);
  };
  return decoder_stack(decoder, stack, mixer, feed_forward);
}

Tensor lfm2_mlp(const Decoder& decoder, int inner, const std::string& name, const Tensor& x) {
  const Tensor gate = silu(decoder.linear(name + ".w1", x, inner, false));
  const Tensor up = decoder.linear(name + ".w3", x, inner, false);
  return decoder.linear(name + ".w2", gate * up, static_cast<int>(x.dim(-1).value()), false);
}

NamedTensors lfm2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = lfm2_config(given).with_defaults(R"({"block_auto_adjust_ff_dim": true,
      "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256})");
  const Decoder decoder(config, inputs);
  const int inner = lfm2_inner(config);
  return lfm2_stack(decoder, config,
                    [&](int, const std::string& name, const Tensor& x) { return lfm2_mlp(decoder, inner, name, x); });
}

}  // namespace jerboa::models
