#include "models/family_graphs.h"
#include "models/llama_like.h"

// GLM-4: norms before and after both halves of a layer, rotary pairs of neighbours in a part of each head, and the
// MLP's gate and values from one product.
namespace jerboa::models {

NamedTensors glm4_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
      "rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5, "attention_bias": true})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = config.flag("attention_bias");
  interleave_ropes(config, form);
  StackForm stack = stack_form(decoder, config);
  stack.after_attention = "post_self_attn_layernorm";
  stack.after_mlp = "post_mlp_layernorm";
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return fused_gated_mlp(decoder, config, name, x);
  });
}

}  // namespace jerboa::models
