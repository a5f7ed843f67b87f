#include "models/llama_like.h"
#include "models/windows.h"

// Qwen2 and Qwen2.5: Llama's layers, with biases of queries, keys and values, and windows in some layers.
namespace jerboa::models {

Tensor qwen2_logits(const Config& config, const TextInputs& inputs) {
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = true;
  form.windows = qwen_windows(config);
  return llama_like_logits(decoder, config, inputs.ids, form);
}

}  // namespace jerboa::models
