#include "models/llama_like.h"
#include "models/windows.h"

// Qwen3: Llama's layers, with a norm of each head's queries and keys before rope, and windows in some layers.
namespace jerboa::models {

Tensor qwen3_logits(const Config& given, const TextInputs& inputs) {
  const Config config = given.with_defaults(R"({"head_dim": 128})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.windows = qwen_windows(config);
  form.head_norm = llama_norm(decoder, config);
  return llama_like_logits(decoder, config, inputs.ids, form);
}

}  // namespace jerboa::models
