#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/mamba2_mixer.h"

// Mamba-2: layers of a state-space memory alone.
namespace jerboa::models {
namespace {

Mamba2Form mamba2_form(const Config& config) {
  Mamba2Form form;
  form.width = config.size("hidden_size");
  form.heads = config.size("num_heads");
  form.head_size = config.size("head_dim");
  form.groups = config.size("n_groups");
  form.state = config.size("state_size");
  form.taps = config.size("conv_kernel");
  form.in_bias = form.out_bias = config.flag("use_bias");
  form.conv_bias = config.flag("use_conv_bias");
  form.eps = norm_epsilon(config, "layer_norm_epsilon", 1e-5);
  if (form.heads * std::int64_t{form.head_size} != static_cast<std::int64_t>(config.positive("expand") * form.width))
    config.fail("num_heads", fmt::format("times head_dim {} is not expand * hidden_size", form.head_size));
  check_mamba2(config, "num_heads", form);
  read_step_limits(config, form);
  return form;
}

}  // namespace

NamedTensors mamba2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8,
      "conv_kernel": 4, "expand": 2, "use_bias": false, "use_conv_bias": true, "hidden_act": "silu"})");
  allow_only(config, R"({"rms_norm": true})");
  const Decoder decoder(config, inputs);
  const Mamba2Form form = mamba2_form(config);
  StackForm stack = stack_form(decoder, config);
  stack.norm = [&](const std::string& name, const Tensor& x) { return decoder.rms_norm(name, x, form.eps); };
  stack.tokens = "backbone.embeddings";
  stack.prefix = "backbone.layers.";
  stack.final_norm = "backbone.norm_f";
  stack.before_attention = "norm";
  stack.attention = "mixer";
  const Sublayer mixer = [&](int layer, const std::string& name, const Tensor& x) {
    return mamba2_mixer(decoder, config, form, layer, name, x);
  };
  return decoder_stack(decoder, stack, mixer, Sublayer());
}

}  // namespace jerboa::models
