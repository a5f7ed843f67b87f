#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Qwen2 and Qwen2.5: Llama's layers, with biases of queries, keys and values, and windows in some layers.
namespace jerboa::models {

NamedTensors qwen2_decoder(const Config& config, const GraphInputs& inputs) {
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = true;
  form.windows = qwen_windows(config);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
