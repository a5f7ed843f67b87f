#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/pooling.h>

#include "models/classification.h"
#include "models/encoder.h"
#include "models/family_graphs.h"
#include "models/rope_config.h"
#include "models/windows.h"

// ModernBERT: rotary positions, gated MLPs, norms before the sublayers, and most layers see only nearby tokens.
namespace jerboa::models {
namespace {

struct ModernBertForm {
  int width = 0, heads = 0, inner = 0;
  double eps = 0;
  bool norm_bias = false, attention_bias = false, mlp_bias = false;
};

Config modernbert_config(const Config& config) {
  return config.with_defaults(R"({"hidden_activation": "gelu", "norm_bias": false, "attention_bias": false,
    "mlp_bias": false, "local_attention": 128, "global_attn_every_n_layers": 3, "global_rope_theta": 160000,
    "local_rope_theta": 10000, "classifier_pooling": "cls", "classifier_bias": false, "classifier_activation": "gelu"})");
}

// Older files have a base per type of layer, and scale both in the same way.
RopeAttrs modernbert_rope(const Config& config, bool local, int head_size) {
  const std::string key = local && config.has("local_rope_theta") ? "local_rope_theta" : "global_rope_theta";
  const std::string usual = fmt::format(R"({{"rope_theta": {}}})", config.positive(key));
  const auto by_type = config.section("rope_parameters");
  const auto found =
      by_type ? by_type->section(local ? "sliding_attention" : "full_attention") : config.section("rope_scaling");
  return rope_attrs(config, (found ? *found : Config::parse("{}", config.origin())).with_defaults(usual), head_size);
}

Tensor modernbert_attention(const Encoder& encoder, const ModernBertForm& form, const std::string& name,
                            const Tensor& x, const RopeAttrs& rope, std::optional<int> reach) {
  const Tensor qkv = encoder.linear(name + ".Wqkv", x, 3 * form.width, form.attention_bias);
  const auto [q, k, v] = split<3>(qkv);
  const Tensor queries = encoder.rope(split_heads(q, form.heads), rope);
  const Tensor keys = encoder.rope(split_heads(k, form.heads), rope);
  const Tensor seen = encoder.attend(queries, keys, split_heads(v, form.heads), {.reach = reach});
  return encoder.linear(name + ".Wo", merge_heads(seen), form.width, form.attention_bias);
}

Tensor modernbert_mlp(const Encoder& encoder, const Config& config, const ModernBertForm& form, const std::string& name,
                      const Tensor& x) {
  const auto [up, gate] = split<2>(encoder.linear(name + ".Wi", x, 2 * form.inner, form.mlp_bias));
  const Tensor gated = activation(config, "hidden_activation", up) * gate;
  return encoder.linear(name + ".Wo", gated, form.width, form.mlp_bias);
}

ModernBertForm modernbert_form(const Config& config) {
  return {.width = config.size("hidden_size"),
          .heads = head_count(config, "num_attention_heads", "hidden_size"),
          .inner = config.size("intermediate_size"),
          .eps = norm_epsilon(config, "norm_eps", 1e-5),
          .norm_bias = config.flag("norm_bias"),
          .attention_bias = config.flag("attention_bias"),
          .mlp_bias = config.flag("mlp_bias")};
}

}  // namespace

NamedTensors modernbert_encoder(const Config& given, const GraphInputs& inputs) {
  const Config config = modernbert_config(given);
  want_plain_encoder(config);
  const Encoder encoder(config, inputs);
  const ModernBertForm form = modernbert_form(config);
  const int head_size = form.width / form.heads, every = config.size("global_attn_every_n_layers");
  const auto local = sliding_layers(config, [&](int layer) { return layer % every != 0; });
  const int reach = config.size("local_attention") / 2;
  const auto norm = [&](const std::string& name, const Tensor& x) {
    return encoder.layer_norm(name, x, form.eps, form.norm_bias);
  };
  const Tensor words =
      encoder.embedding("model.embeddings.tok_embeddings", encoder.ids(), config.size("vocab_size"), form.width);
  Tensor x = norm("model.embeddings.norm", words);
  for (std::size_t layer = 0; layer < local.size(); ++layer) {
    const std::string name = fmt::format("model.layers.{}", layer);
    const Tensor normed = layer == 0 ? x : norm(name + ".attn_norm", x);
    x = x + modernbert_attention(encoder, form, name + ".attn", normed,
                                 modernbert_rope(config, local[layer], head_size),
                                 local[layer] ? std::optional(reach) : std::nullopt);
    x = x + modernbert_mlp(encoder, config, form, name + ".mlp", norm(name + ".mlp_norm", x));
  }
  return {{"hidden", norm("model.final_norm", x)}};
}

NamedTensors modernbert_pooler(const Config& given, const GraphInputs& inputs) {
  const Config config = modernbert_config(given);
  const std::string kind = config.text("classifier_pooling");
  if (kind != "cls" && kind != "mean") config.fail("classifier_pooling", "is neither cls nor mean");
  const Tensor pooled =
      pool(hidden_input(inputs), inputs.find("lengths"), kind == "cls" ? Pooling::cls : Pooling::mean);
  if (!classifies(config)) return {{"pooled", pooled}};
  const Modules modules(config, inputs.weights);
  const Tensor dense = modules.linear("head.dense", pooled, config.size("hidden_size"), config.flag("classifier_bias"));
  const Tensor active = activation(config, "classifier_activation", dense);
  const Tensor normed =
      modules.layer_norm("head.norm", active, norm_epsilon(config, "norm_eps", 1e-5), config.flag("norm_bias"));
  return {{"logits", modules.linear("classifier", normed, class_count(config), true)}};
}

}  // namespace jerboa::models
