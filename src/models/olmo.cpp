#include "models/family_graphs.h"
#include "models/llama_like.h"

// OLMo: layer norms without weights, whose epsilon is not in the config, and clipped queries, keys and values.
namespace jerboa::models {

NamedTensors olmo_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu"})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.clip = config.limit("clip_qkv");
  StackForm stack = stack_form(decoder, config);
  stack.norm = [](const std::string& name, const Tensor& x) { return layer_norm(x, {}, {}, 1e-5).named(name); };
  return decoder_stack(decoder, config, stack, form);
}

}  // namespace jerboa::models
