#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// Apertus: Llama's layers, with norms of each head's queries and keys, and an MLP without a gate whose activation is
// learned.
namespace jerboa::models {
namespace {

// xIELU: quadratic above 0, exponential below, each with a factor that is learned in each layer. The file also holds
// the slope at 0, `beta`, and a limit just below 0 that keeps the exponential's gradient finite, `eps`.
Tensor xielu(const Decoder& decoder, const std::string& name, const Tensor& x) {
  constexpr double softplus_gives_08 = 0.2033823208110246, softplus_gives_03 = -1.0502256128148468;  // at the start
  const Tensor above = softplus(decoder.vector(name + ".alpha_p", {1}, softplus_gives_08));
  const Tensor beta = stop_gradient(decoder.vector(name + ".beta", {}, 0.5));
  const Tensor below = beta + softplus(decoder.vector(name + ".alpha_n", {1}, softplus_gives_03));
  const Tensor eps = stop_gradient(decoder.vector(name + ".eps", {}, -1e-6));
  const Tensor slope = beta * x;
  const Tensor square = above * x * x + slope;
  const Tensor curve = (expm1(minimum(x, eps)) - x) * below + slope;
  const Tensor is_above = greater(x, 0.0);
  return where(is_above, square, curve);
}

Tensor apertus_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  if (config.text("hidden_act") != "xielu") return plain_mlp(decoder, config, {}, name, x);
  const Tensor up = decoder.linear(name + ".up_proj", x, config.size("intermediate_size"), false);
  return decoder.linear(name + ".down_proj", xielu(decoder, name + ".act_fn", up), config.size("hidden_size"), false);
}

}  // namespace

NamedTensors apertus_decoder(const Config& given, const GraphInputs& inputs) {
  const Config older = given.with_defaults(R"({"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12000000})");
  const Config config = older.has("rope_scaling") ? older : older.with_defaults(R"({"rope_parameters": {
      "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
      "original_max_position_embeddings": 8192}})");
  allow_only(config, R"({"qk_norm": true, "post_norm": false, "mlp_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.head_norm = llama_norm(decoder, config);
  StackForm stack = stack_form(decoder, config);
  stack.before_attention = "attention_layernorm";
  stack.before_mlp = "feedforward_layernorm";
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return apertus_mlp(decoder, config, name, x);
  });
}

}  // namespace jerboa::models
