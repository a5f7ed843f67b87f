#include "models/cohere.h"

#include "models/family_graphs.h"

// Command R and Command R+: the two halves of a layer in parallel behind one layer norm without a bias, and rotary
// pairs of neighbours; larger models have a norm of each head's queries and keys, whose weights differ from head to
// head.
namespace jerboa::models {
namespace {

// NAME.weight is [heads, size], for x [batch, heads, time, size].
Tensor norm_of_heads(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  const Dim heads = x.dim(1), size = x.dim(3);
  const Tensor weight = reshape(decoder.vector(name + ".weight", {heads, size}, 1), {heads, 1, size});
  const Tensor centred = layer_norm(x, {}, {}, norm_epsilon(config, "layer_norm_eps", 1e-5));
  return (centred * weight).named(name);
}

}  // namespace

StackForm cohere_stack(const Decoder& decoder, const Config& config) {
  StackForm stack = stack_form(decoder, config);
  stack.norm = centred_norm(decoder, config, "layer_norm_eps", false);
  stack.parallel = true;
  stack.before_mlp = "";
  stack.logit_scale = config.number("logit_scale");
  return stack;
}

NamedTensors cohere_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(
      R"({"hidden_act": "silu", "logit_scale": 0.0625, "rope_theta": 500000, "tie_word_embeddings": true})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  interleave_ropes(config, form);
  if (config.flag("use_qk_norm", false))
    form.head_norm = [&](const std::string& name, const Tensor& x) { return norm_of_heads(decoder, config, name, x); };
  return decoder_stack(decoder, config, cohere_stack(decoder, config), form);
}

}  // namespace jerboa::models
