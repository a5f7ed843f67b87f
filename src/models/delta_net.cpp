#include "models/delta_net.h"

#include <cmath>
#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/recurrent.h"

namespace jerboa::models {
namespace {

/// x / sqrt(sum of squares + 1e-6), as a norm.
Tensor unit_length(const Tensor& x) {
  const auto size = static_cast<double>(x.dim(-1).value());
  return rms_norm(x, {}, 1e-6 / size) * (1 / std::sqrt(size));
}

Tensor delta_layer(const Decoder& decoder, const Config& config, const DeltaForm& form, int layer,
                   const std::string& name, const Tensor& x) {
  const DeltaProjections parts = form.project(name, x);
  const Tensor mixed = activation(config, "hidden_act",
                                  causal_convolution(decoder, layer, name + ".conv1d", parts.mixed, form.taps, false));
  const int keys = form.key_heads * form.key_size, values = form.value_heads * form.value_size;
  const auto sections = split(mixed, {keys, keys, values});
  const auto heads = [&](const Tensor& part, int count) {
    return reshape(part, {part.dim(0), part.dim(1), count, -1});
  };
  const Tensor rates = exp(decoder.vector(name + ".A_log", {form.value_heads}, 0));
  const Tensor steps = softplus(parts.step + decoder.vector(name + ".dt_bias", {form.value_heads}, 1));
  MemoryAccess access;
  access.q = unit_length(heads(sections[0], form.key_heads)) * (1 / std::sqrt(static_cast<double>(form.key_size)));
  access.k = unit_length(heads(sections[1], form.key_heads));
  access.v = heads(sections[2], form.value_heads);
  access.log_decay = -(rates * steps);
  access.beta = sigmoid(parts.strength);
  const Tensor remembered = read_memory(decoder, layer, access);
  const Tensor normed = decoder.rms_norm(name + ".norm", remembered, norm_epsilon(config, "rms_norm_eps", 1e-6));
  const Tensor gated = normed * silu(heads(parts.gate, form.value_heads));
  return decoder.linear(name + ".out_proj", reshape(gated, {x.dim(0), x.dim(1), values}), form.width, false);
}

// The projection of each head holds its queries, followed by the gate of its output.
Tensor gated_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                       const Tensor& x) {
  const int size = form.heads * form.head_size;
  const Tensor both = reshape(decoder.linear(name + ".q_proj", x, 2 * size, form.bias),
                              {x.dim(0), x.dim(1), form.heads, std::int64_t{2} * form.head_size});
  const auto [queries, gates] = split<2>(both);
  const Shape flat{x.dim(0), x.dim(1), size};
  const Tensor q = reshape(queries, flat);
  const Tensor k = decoder.linear(name + ".k_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor v = decoder.linear(name + ".v_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor seen = reshape(attend_heads(decoder, form, layer, name, q, k, v), gates.shape());
  return decoder.linear(name + ".o_proj", reshape(seen * sigmoid(gates), flat), form.width, form.output_bias);
}

}  // namespace

Config delta_net_config(const Config& config) {
  return config.with_defaults(R"({"num_key_value_heads": 2, "head_dim": 256, "hidden_act": "silu",
      "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "full_attention_interval": 4})");
}

DeltaForm delta_form(const Config& config) {
  allow_only(config, R"({"attn_output_gate": true, "use_sliding_window": false})");
  DeltaForm form;
  form.width = config.size("hidden_size");
  form.key_heads = config.size("linear_num_key_heads");
  form.value_heads = config.size("linear_num_value_heads");
  form.key_size = config.size("linear_key_head_dim");
  form.value_size = config.size("linear_value_head_dim");
  form.taps = config.size("linear_conv_kernel_dim");
  if (form.value_heads % form.key_heads != 0)
    config.fail("linear_num_value_heads", fmt::format("is not a multiple of linear_num_key_heads {}", form.key_heads));
  if (std::int64_t{form.value_heads} * (std::int64_t{form.key_size} + form.value_size) > Config::largest_size)
    config.fail("linear_num_value_heads", fmt::format("is too many heads of {} features each", form.value_size));
  return form;
}

NamedTensors delta_net_stack(const Decoder& decoder, const Config& config, const DeltaForm& form, const Sublayer& mlp) {
  const int interval = config.size("full_attention_interval");
  const auto attends = attending_layers(config, [&](int layer) { return (layer + 1) % interval == 0; });
  StackForm stack = stack_form(decoder, config);
  stack.norm = [&decoder, eps = norm_epsilon(config, "rms_norm_eps", 1e-6)](const std::string& name, const Tensor& x) {
    return decoder.rms_norm_around_one(name, x, eps);
  };
  AttentionForm attention = attention_form(config);
  attention.bias = attention.output_bias = config.flag("attention_bias", false);
  attention.head_norm = stack.norm;
  const Sublayer mixer = [&](int layer, const std::string& name, const Tensor& x) {
    if (attends[static_cast<std::size_t>(layer)]) return gated_attention(decoder, attention, layer, name, x);
    return delta_layer(decoder, config, form, layer, fmt::format("model.layers.{}.linear_attn", layer), x);
  };
  return decoder_stack(decoder, stack, mixer, mlp);
}

DeltaProjections separate_projections(const Decoder& decoder, const DeltaForm& form, const std::string& name,
                                      const Tensor& x) {
  const int keys = form.key_heads * form.key_size, values = form.value_heads * form.value_size;
  DeltaProjections parts;
  parts.mixed = decoder.linear(name + ".in_proj_qkv", x, 2 * keys + values, false);
  parts.gate = decoder.linear(name + ".in_proj_z", x, values, false);
  parts.strength = decoder.linear_f32(name + ".in_proj_b", x, form.value_heads, false);
  parts.step = decoder.linear_f32(name + ".in_proj_a", x, form.value_heads, false);
  return parts;
}

}  // namespace jerboa::models
