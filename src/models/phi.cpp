#include "models/family_graphs.h"
#include "models/llama_like.h"

// Phi-1 to Phi-2: attention and MLP in parallel behind one layer norm, biases everywhere, and a part of each head
// rotated.
namespace jerboa::models {

NamedTensors phi_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "gelu_new", "partial_rotary_factor": 0.5})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = true;
  form.output = "dense";
  form.query_norm = "q_layernorm";
  form.key_norm = "k_layernorm";
  StackForm stack = stack_form(decoder, config);
  stack.norm = centred_norm(decoder, config, "layer_norm_eps");
  if (config.flag("qk_layernorm", false)) form.head_norm = stack.norm;
  stack.final_norm = "model.final_layernorm";
  stack.head_bias = true;
  stack.parallel = true;
  stack.before_mlp = "";
  const PlainMlp mlp{.up = "fc1", .down = "fc2", .bias = true};
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return plain_mlp(decoder, config, mlp, name, x);
  });
}

}  // namespace jerboa::models
