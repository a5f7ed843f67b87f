#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Mistral: Llama's layers, each with the same window or, in later models, with none.
namespace jerboa::models {

NamedTensors mistral_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "sliding_window": 4096})");
  allow_only(config, R"({"attention_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.windows = equal_windows(config);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
