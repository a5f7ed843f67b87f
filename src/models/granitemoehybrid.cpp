#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/mamba2_mixer.h"
#include "models/recurrent.h"

// Granite 4: layers with a Mamba-2 memory or attention, each with an MLP that every token uses and, in some models, a
// mixture of experts.
namespace jerboa::models {
namespace {

Mamba2Form granite_mamba(const Config& config) {
  Mamba2Form form;
  form.width = config.size("hidden_size");
  form.heads = config.size("mamba_n_heads");
  form.head_size = mamba2_head_size(config, "mamba_d_head", config.size("mamba_expand") * form.width, form.heads);
  form.groups = config.size("mamba_n_groups");
  form.state = config.size("mamba_d_state");
  form.taps = config.size("mamba_d_conv");
  form.in_bias = form.out_bias = config.flag("mamba_proj_bias");
  form.conv_bias = config.flag("mamba_conv_bias");
  form.eps = norm_epsilon(config, "rms_norm_eps", 1e-6);
  check_mamba2(config, "mamba_n_heads", form);
  read_step_limits(config, form);
  return form;
}

AttentionForm granite_attention(const Config& config) {
  const std::string positions = config.text("position_embedding_type", "nope");
  if (positions != "nope" && positions != "rope") config.fail("position_embedding_type", "is neither rope nor null");
  AttentionForm form = positions == "rope" ? attention_form(config) : attention_sizes(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.scale = config.positive("attention_multiplier", 1);
  return form;
}

ExpertsForm granite_experts(const Config& config) {
  ExpertsForm form = experts_form(config, config.count("num_local_experts"), "intermediate_size");
  form.router = "router.layer";
  form.scores = ExpertScores::softmax_of_chosen;
  form.up = "input_linear.weight";
  form.down = "output_linear.weight";
  return form;
}

Tensor shared_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  const Tensor both = decoder.linear(name + ".input_linear", x, 2 * config.size("shared_intermediate_size"), false);
  const Tensor hidden = gated_halves(config)(both);
  return decoder.linear(name + ".output_linear", hidden, config.size("hidden_size"), false);
}

Tensor granite_mixture(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& x) {
  const Tensor tokens = reshape(x, {-1, x.dim(-1)});
  const TopK routes = route(decoder, form, name, tokens);
  return reshape(apply_experts(decoder, form, name, tokens, routes), x.shape());
}

}  // namespace

NamedTensors granitemoehybrid_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2,
      "shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
      "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true, "mamba_proj_bias": false})");
  allow_only(config, R"({"normalization_function": "rmsnorm"})");
  const Decoder decoder(config, inputs);
  const auto attends = attending_layers(config, [](int) { return false; });
  const Mamba2Form mamba = granite_mamba(config);
  const AttentionForm attention = granite_attention(config);
  const bool sparse = config.integer("num_local_experts") != 0;
  const ExpertsForm experts = sparse ? granite_experts(config) : ExpertsForm();
  StackForm stack = stack_form(decoder, config);
  stack.embedding_scale = config.number("embedding_multiplier", 1);
  stack.residual_scale = config.number("residual_multiplier", 1);
  stack.logit_scale = 1 / config.positive("logits_scaling", 1);
  const Sublayer mixer = [&](int layer, const std::string& name, const Tensor& x) {
    if (attends[static_cast<std::size_t>(layer)]) return self_attention(decoder, attention, layer, name, x);
    return mamba2_mixer(decoder, config, mamba, layer, fmt::format("model.layers.{}.mamba", layer), x);
  };
  const Sublayer mlp = [&](int layer, const std::string&, const Tensor& x) {
    const std::string name = fmt::format("model.layers.{}", layer);
    if (!sparse) return shared_mlp(decoder, config, name + ".shared_mlp", x);
    const Tensor routed = granite_mixture(decoder, experts, name + ".block_sparse_moe", x);
    return routed + shared_mlp(decoder, config, name + ".shared_mlp", x);
  };
  return decoder_stack(decoder, stack, mixer, mlp);
}

}  // namespace jerboa::models
