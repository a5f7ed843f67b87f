#include "models/family_graphs.h"
#include "models/llama_like.h"

// Seed-OSS: Llama's layers, with biases of queries, keys and values.
namespace jerboa::models {

NamedTensors seed_oss_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu"})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = config.flag("attention_bias", true);
  form.output_bias = config.flag("attention_out_bias", false);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
