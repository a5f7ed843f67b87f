#include "models/family_graphs.h"
#include "models/llama_like.h"

// Granite: Llama's layers, with multipliers of embeddings, scores, residuals and logits.
namespace jerboa::models {

NamedTensors granite_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu"})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.scale = config.positive("attention_multiplier", 1);
  StackForm stack = stack_form(decoder, config);
  stack.embedding_scale = config.number("embedding_multiplier", 1);
  stack.residual_scale = config.number("residual_multiplier", 1);
  stack.logit_scale = 1 / config.positive("logits_scaling", 1);
  return decoder_stack(decoder, config, stack, form);
}

}  // namespace jerboa::models
