#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/mamba2_mixer.h"

// Falcon-H1: in each layer attention and a Mamba-2 memory side by side, with multipliers nearly everywhere.
namespace jerboa::models {
namespace {

Mamba2Form falcon_mamba(const Config& config) {
  Mamba2Form form;
  form.width = config.size("hidden_size");
  const int inner = config.has("mamba_d_ssm") ? config.size("mamba_d_ssm") : config.size("mamba_expand") * form.width;
  form.heads = config.size("mamba_n_heads");
  form.head_size = mamba2_head_size(config, "mamba_d_head", inner, form.heads);
  form.groups = config.size("mamba_n_groups");
  form.state = config.size("mamba_d_state");
  form.taps = config.size("mamba_d_conv");
  form.in_bias = config.flag("mamba_proj_bias");
  form.out_bias = config.flag("projectors_bias");
  form.conv_bias = config.flag("mamba_conv_bias");
  form.norm = config.flag("mamba_rms_norm");
  form.norm_groups = form.groups;
  form.norm_before_gate = config.flag("mamba_norm_before_gate");
  form.eps = norm_epsilon(config, "rms_norm_eps", 1e-5);
  form.in_scale = config.number("ssm_in_multiplier", 1);
  if (config.has("ssm_multipliers")) form.section_scales = config.numbers("ssm_multipliers");
  if (!form.section_scales.empty() && form.section_scales.size() != 5)
    config.fail("ssm_multipliers", "does not have 5 numbers");
  check_mamba2(config, "mamba_n_heads", form);
  read_step_limits(config, form);
  return form;
}

Tensor falcon_attention(const Decoder& decoder, const Config& config, const AttentionForm& form, int layer,
                        const std::string& name, const Tensor& x) {
  const Tensor q = decoder.linear(name + ".q_proj", x, form.heads * form.head_size, form.bias);
  const Tensor k = decoder.linear(name + ".k_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor v = decoder.linear(name + ".v_proj", x, form.kv_heads * form.head_size, form.bias);
  return attend_and_project(decoder, form, layer, name, q, k * config.number("key_multiplier", 1), v);
}

Tensor falcon_mlp(const Decoder& decoder, const Config& config, const std::vector<double>& scales,
                  const std::string& name, const Tensor& x) {
  const int inner = config.size("intermediate_size");
  const bool bias = config.flag("mlp_bias", false);
  const Tensor gate = decoder.linear(name + ".gate_proj", x, inner, bias) * scales[0];
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, bias);
  const Tensor hidden = up * activation(config, "hidden_act", gate);
  return decoder.linear(name + ".down_proj", hidden, config.size("hidden_size"), bias) * scales[1];
}

}  // namespace

NamedTensors falcon_h1_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
      "mamba_expand": 2, "mamba_conv_bias": true, "mamba_proj_bias": false, "mamba_norm_before_gate": true,
      "mamba_rms_norm": false, "projectors_bias": false})");
  allow_only(config, R"({"mamba_use_mlp": true})");
  const Decoder decoder(config, inputs);
  const Mamba2Form mamba = falcon_mamba(config);
  AttentionForm attention = attention_form(config);
  attention.bias = attention.output_bias = config.flag("attention_bias", false);
  const auto mlp_scales = config.has("mlp_multipliers") ? config.numbers("mlp_multipliers") : std::vector<double>{1, 1};
  if (mlp_scales.size() != 2) config.fail("mlp_multipliers", "does not have 2 numbers");
  const double attention_in = config.number("attention_in_multiplier", 1);
  const double attention_out = config.number("attention_out_multiplier", 1);
  const double mamba_out = config.number("ssm_out_multiplier", 1);
  StackForm stack = stack_form(decoder, config);
  stack.final_norm = "model.final_layernorm";
  stack.before_mlp = "pre_ff_layernorm";
  stack.mlp = "feed_forward";
  stack.embedding_scale = config.number("embedding_multiplier", 1);
  stack.logit_scale = config.number("lm_head_multiplier", 1);
  const Sublayer both = [&](int layer, const std::string& name, const Tensor& x) {
    const Tensor remembered =
        mamba2_mixer(decoder, config, mamba, layer, fmt::format("model.layers.{}.mamba", layer), x) * mamba_out;
    return remembered + falcon_attention(decoder, config, attention, layer, name, x * attention_in) * attention_out;
  };
  const Sublayer mlp = [&](int, const std::string& name, const Tensor& x) {
    return falcon_mlp(decoder, config, mlp_scales, name, x);
  };
  return decoder_stack(decoder, stack, both, mlp);
}

}  // namespace jerboa::models
