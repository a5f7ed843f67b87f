#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// ERNIE 4.5's dense models: Llama's layers, with rotary pairs of neighbours.
namespace jerboa::models {

NamedTensors ernie4_5_decoder(const Config& given, const GraphInputs& inputs) {
  const bool bias = given.flag("use_bias", false);
  const Config config =
      given
          .with_defaults(R"({"num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5,
                             "rope_theta": 500000, "tie_word_embeddings": true})")
          .with_defaults(bias ? R"({"mlp_bias": true})" : "{}");
  allow_only(config, R"({"compression_ratio": 1})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = bias;
  interleave_ropes(config, form);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
