#include "models/bert_like.h"
#include "models/classification.h"
#include "models/family_graphs.h"

// DistilBERT: BERT's layers under other names, without token types.
namespace jerboa::models {
namespace {

BertForm distilbert_form(const Config& config) {
  return {.layers = config.count("n_layers"),
          .width = config.size("dim"),
          .heads = head_count(config, "n_heads", "dim"),
          .inner = config.size("hidden_dim"),
          .activation = "activation",
          .layer_prefix = "distilbert.transformer.layer.",
          .names = {.query = ".attention.q_lin",
                    .key = ".attention.k_lin",
                    .value = ".attention.v_lin",
                    .output = ".attention.out_lin",
                    .attention_norm = ".sa_layer_norm",
                    .up = ".ffn.lin1",
                    .down = ".ffn.lin2",
                    .mlp_norm = ".output_layer_norm"}};
}

}  // namespace

// Sinusoidal positions are stored in the checkpoint, just like learned ones.
NamedTensors distilbert_encoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"activation": "gelu"})");
  want_plain_encoder(config);
  const Encoder encoder(config, inputs);
  const BertForm form = distilbert_form(config);
  const std::string name = "distilbert.embeddings";
  const Tensor words =
      encoder.embedding(name + ".word_embeddings", encoder.ids(), config.size("vocab_size"), form.width);
  const Tensor places =
      encoder.positions(name + ".position_embeddings", config.size("max_position_embeddings", 512), form.width);
  const Tensor x = encoder.layer_norm(name + ".LayerNorm", words + places, form.eps);
  return {{"hidden", bert_layers(encoder, config, form, x)}};
}

NamedTensors distilbert_pooler(const Config& config, const GraphInputs& inputs) {
  if (!classifies(config)) return {{"pooled", first_token(hidden_input(inputs))}};
  const Modules modules(config, inputs.weights);
  const Tensor inner =
      relu(modules.linear("pre_classifier", first_token(hidden_input(inputs)), config.size("dim"), true));
  return {{"logits", modules.linear("classifier", inner, class_count(config), true)}};
}

}  // namespace jerboa::models
