#include "models/llama_like.h"

// Llama 1 to 3: rotary positions and fewer key heads than query heads.
namespace jerboa::models {

Tensor llama_logits(const Config& config, const TextInputs& inputs) {
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  return llama_like_logits(decoder, config, inputs.ids, form);
}

}  // namespace jerboa::models
