#include "models/bert_like.h"
#include "models/family_graphs.h"

// RoBERTa and XLM-RoBERTa: BERT with positions that start after the padding token's id.
namespace jerboa::models {

int roberta_first_position(const Config& config) {
  return padding_token(config.with_defaults(R"({"pad_token_id": 1})")) + 1;
}

NamedTensors roberta_encoder(const Config& config, const GraphInputs& inputs) {
  return bert_like_encoder(
      config, inputs, "roberta.", [](const Encoder& encoder, const Config& full, const std::string& name) {
        return encoder.positions_after(roberta_first_position(full) - 1, name,
                                       full.size("max_position_embeddings", 512), full.size("hidden_size"));
      });
}

NamedTensors roberta_pooler(const Config& config, const GraphInputs& inputs) {
  return roberta_like_pooler(config, inputs, "roberta.");
}

}  // namespace jerboa::models
