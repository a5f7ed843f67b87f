#include <fmt/format.h>

#include "models/family_graphs.h"
#include "models/llama_like.h"

// StableLM: Llama's layers with layer norms, and a part of each head rotated; some models have attention and MLP in
// parallel behind one norm, and a norm for each head's queries and keys.
namespace jerboa::models {
namespace {

// The weights NAME.norms.HEAD.weight of all heads, for x [batch, heads, time, size].
Tensor norm_per_head(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  const auto heads = static_cast<int>(x.dim(1).value());
  std::vector<Operand> weights;
  for (int head = 0; head < heads; ++head)
    weights.emplace_back(decoder.vector(fmt::format("{}.norms.{}.weight", name, head), {x.dim(3)}, 1));
  const Tensor weight = reshape(concat(weights), {heads, 1, x.dim(3)});
  return layer_norm(x, {}, {}, norm_epsilon(config, "layer_norm_eps", 1e-5)) * weight;
}

}  // namespace

NamedTensors stablelm_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu", "partial_rotary_factor": 0.25})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = config.flag("use_qkv_bias", false);
  form.query_norm = "q_layernorm";
  form.key_norm = "k_layernorm";
  if (config.flag("qk_layernorm", false))
    form.head_norm = [&](const std::string& name, const Tensor& x) { return norm_per_head(decoder, config, name, x); };
  StackForm stack = stack_form(decoder, config);
  stack.norm = centred_norm(decoder, config, "layer_norm_eps");
  stack.parallel = config.flag("use_parallel_residual", false);
  if (stack.parallel) stack.before_mlp = "";
  return decoder_stack(decoder, config, stack, form);
}

}  // namespace jerboa::models
