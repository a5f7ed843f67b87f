#include "models/glm.h"

#include "models/family_graphs.h"

namespace jerboa::models {

NamedTensors glm_like(const Config& given, const GraphInputs& inputs, void (*change)(StackForm& stack)) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
      "rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5, "attention_bias": true})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = config.flag("attention_bias");
  interleave_ropes(config, form);
  StackForm stack = stack_form(decoder, config);
  if (change) change(stack);
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return fused_gated_mlp(decoder, config, name, x);
  });
}

NamedTensors glm_decoder(const Config& config, const GraphInputs& inputs) { return glm_like(config, inputs); }

}  // namespace jerboa::models
