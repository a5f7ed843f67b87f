#include "models/bert_like.h"
#include "models/classification.h"
#include "models/family_graphs.h"

namespace jerboa::models {

NamedTensors bert_encoder(const Config& config, const GraphInputs& inputs) {
  return bert_like_encoder(
      config, inputs, "bert.", [](const Encoder& encoder, const Config& full, const std::string& name) {
        return encoder.positions(name, full.size("max_position_embeddings", 512), full.size("hidden_size"));
      });
}

NamedTensors bert_pooler(const Config& config, const GraphInputs& inputs) {
  const Modules modules(config, inputs.weights);
  const Tensor pooled = bert_pooled(modules, "bert.pooler.dense", hidden_input(inputs));
  if (!classifies(config)) return {{"pooled", pooled}};
  return {{"logits", modules.linear("classifier", pooled, class_count(config), true)}};
}

}  // namespace jerboa::models
