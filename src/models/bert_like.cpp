#include "models/bert_like.h"

#include <fmt/format.h>

#include "models/classification.h"

namespace jerboa::models {
namespace {

Tensor bert_attention(const Encoder& encoder, const BertForm& form, const std::string& layer, const Tensor& x) {
  const auto heads_of = [&](const std::string& name) {
    return split_heads(encoder.linear(layer + name, x, form.width, true), form.heads);
  };
  const Tensor queries = heads_of(form.names.query);
  const Tensor keys = heads_of(form.names.key);
  const Tensor values = heads_of(form.names.value);
  const Tensor seen = encoder.attend(queries, keys, values, {.bias = form.score_bias});
  return encoder.linear(layer + form.names.output, merge_heads(seen), form.width, true);
}

Tensor bert_mlp(const Encoder& encoder, const Config& config, const BertForm& form, const std::string& layer,
                const Tensor& x) {
  const Tensor up = activation(config, form.activation, encoder.linear(layer + form.names.up, x, form.inner, true));
  return encoder.linear(layer + form.names.down, up, form.width, true);
}

}  // namespace

BertForm bert_form(const Config& config, const std::string& layer_prefix) {
  return {.layers = config.count("num_hidden_layers"),
          .width = config.size("hidden_size"),
          .heads = head_count(config, "num_attention_heads", "hidden_size"),
          .inner = config.size("intermediate_size"),
          .eps = norm_epsilon(config, "layer_norm_eps", 1e-12),
          .layer_prefix = layer_prefix};
}

Tensor bert_layers(const Encoder& encoder, const Config& config, const BertForm& form, Tensor x) {
  for (int layer = 0; layer < form.layers; ++layer) {
    const std::string name = fmt::format("{}{}", form.layer_prefix, layer);
    const Tensor seen = bert_attention(encoder, form, name, x);
    x = encoder.layer_norm(name + form.names.attention_norm, x + seen, form.eps);
    const Tensor more = bert_mlp(encoder, config, form, name, x);
    x = encoder.layer_norm(name + form.names.mlp_norm, x + more, form.eps);
  }
  return x;
}

NamedTensors bert_like_encoder(const Config& given, const GraphInputs& inputs, const std::string& prefix,
                               PositionRows positions) {
  const Config config = given.with_defaults(R"({"hidden_act": "gelu", "type_vocab_size": 2})");
  want_plain_encoder(config);
  const Encoder encoder(config, inputs);
  const BertForm form = bert_form(config, prefix + "encoder.layer.");
  const std::string name = prefix + "embeddings";
  const Tensor words =
      encoder.embedding(name + ".word_embeddings", encoder.ids(), config.size("vocab_size"), form.width);
  const Tensor types = encoder.token_types(name + ".token_type_embeddings", config.size("type_vocab_size"), form.width);
  const Tensor places = positions(encoder, config, name + ".position_embeddings");
  const Tensor x = encoder.layer_norm(name + ".LayerNorm", words + types + places, form.eps);
  return {{"hidden", bert_layers(encoder, config, form, x)}};
}

Tensor bert_pooled(const Modules& modules, const std::string& name, const Tensor& hidden) {
  return tanh(modules.linear(name, first_token(hidden), static_cast<int>(hidden.dim(-1).value()), true));
}

NamedTensors roberta_like_pooler(const Config& config, const GraphInputs& inputs, const std::string& prefix) {
  const Modules modules(config, inputs.weights);
  const Tensor hidden = hidden_input(inputs);
  if (!classifies(config)) return {{"pooled", bert_pooled(modules, prefix + "pooler.dense", hidden)}};
  const Tensor inner = bert_pooled(modules, "classifier.dense", hidden);
  return {{"logits", modules.linear("classifier.out_proj", inner, class_count(config), true)}};
}

}  // namespace jerboa::models
