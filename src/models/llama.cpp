#include "models/family_graphs.h"
#include "models/llama_like.h"

// Llama 1 to 3: rotary positions and fewer key heads than query heads.
namespace jerboa::models {

NamedTensors llama_decoder(const Config& config, const GraphInputs& inputs) {
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
