#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// StarCoder2: layer norms, biases everywhere and an MLP without a gate.
namespace jerboa::models {

NamedTensors starcoder2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
                                                "use_bias": true, "tie_word_embeddings": true})");
  allow_only(config, R"({"mlp_type": "default", "norm_type": "layer_norm"})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("use_bias");
  form.windows = equal_windows(config);
  StackForm stack = stack_form(decoder, config);
  stack.norm = centred_norm(decoder, config, "norm_epsilon");
  const PlainMlp mlp{.up = "c_fc", .down = "c_proj", .bias = form.bias};
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return plain_mlp(decoder, config, mlp, name, x);
  });
}

}  // namespace jerboa::models
