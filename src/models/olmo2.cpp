#include "models/family_graphs.h"
#include "models/olmo.h"

namespace jerboa::models {

Config olmo_config(const Config& config) {
  return config.with_defaults(R"({"hidden_act": "silu", "rms_norm_eps": 1e-5})");
}

AttentionForm olmo_attention_form(const Decoder& decoder, const Config& config) {
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.projection_norm = llama_norm(decoder, config);
  return form;
}

NamedTensors olmo2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = olmo_config(given);
  const Decoder decoder(config, inputs);
  return decoder_stack(decoder, config, post_norm_stack(decoder, config), olmo_attention_form(decoder, config));
}

}  // namespace jerboa::models
