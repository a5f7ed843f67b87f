#include "models/family_graphs.h"
#include "models/llama_like.h"

// Arcee's AFM: Llama's layers, with an MLP without a gate.
namespace jerboa::models {

NamedTensors arcee_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  const PlainMlp mlp{.bias = config.flag("mlp_bias", false)};
  return decoder_stack(decoder, stack_form(decoder, config), form, [&](int, const std::string& name, const Tensor& x) {
    return plain_mlp(decoder, config, mlp, name, x);
  });
}

}  // namespace jerboa::models
