#pragma once

#include "models/encoder.h"

// The architecture of BERT and its descendants: each sublayer's result is added to its input, then normalised.
namespace jerboa::models {

/// The names of a layer's modules, after that of the layer itself.
struct BertLayerNames {
  std::string query = ".attention.self.query", key = ".attention.self.key", value = ".attention.self.value";
  std::string output = ".attention.output.dense", attention_norm = ".attention.output.LayerNorm";
  std::string up = ".intermediate.dense", down = ".output.dense", mlp_norm = ".output.LayerNorm";
};

/// Sizes, and how descendants differ.
struct BertForm {
  int layers = 0, width = 0, heads = 0, inner = 0;
  double eps = 1e-12;
  std::string activation = "hidden_act";  ///< its key in the config
  std::string layer_prefix;               ///< up to the number of a layer
  BertLayerNames names = {};
  Tensor score_bias = {};  ///< added to the scores of every layer
};
/// The form of BERT itself, with the config's sizes.
BertForm bert_form(const Config& config, const std::string& layer_prefix);

/// All layers.
Tensor bert_layers(const Encoder& encoder, const Config& config, const BertForm& form, Tensor x);

/// BERT's encoder, for models with other prefixes and positions. The positions are rows of
/// PREFIXembeddings.position_embeddings.
using PositionRows = Tensor (*)(const Encoder& encoder, const Config& config, const std::string& name);
NamedTensors bert_like_encoder(const Config& config, const GraphInputs& inputs, const std::string& prefix,
                               PositionRows positions);

/// tanh(dense layer NAME(first token)).
Tensor bert_pooled(const Modules& modules, const std::string& name, const Tensor& hidden);
/// RoBERTa's head for sequence classification: bert_pooled and a second layer. For other configs, the pooler
/// PREFIXpooler.
NamedTensors roberta_like_pooler(const Config& config, const GraphInputs& inputs, const std::string& prefix);

}  // namespace jerboa::models
