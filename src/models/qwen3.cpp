#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Qwen3: Llama's layers, with a norm of each head's queries and keys before rope, and windows in some layers.
namespace jerboa::models {

NamedTensors qwen3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"head_dim": 128})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.windows = qwen_windows(config);
  form.head_norm = llama_norm(decoder, config);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
