#include <fmt/format.h>

#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/rope_config.h"
#include "models/windows.h"

// gpt-oss: attention with sinks, a window in every other layer, and experts with biases and a clamped activation.
namespace jerboa::models {
namespace {

// Gate and up features alternate in the projection.
Tensor clamped_swiglu(const Tensor& projected, double gain, double limit) {
  const Dim width = projected.dim(-1);
  const int last = projected.rank() - 1;
  Tensor gate = slice(projected, last, 0, width, 2);
  if (limit > 0) gate = minimum(gate, limit);
  Tensor up = slice(projected, last, 1, width, 2);
  if (limit > 0) up = clamp(up, -limit, limit);
  const Tensor gated = gate * sigmoid(gate * gain);
  return (up + 1) * gated;
}

ExpertsForm gpt_oss_experts(const Config& config) {
  ExpertsForm form = experts_form(config, config.count("num_local_experts"), "intermediate_size");
  form.router = "router";
  form.router_bias = true;
  form.scores = ExpertScores::softmax_of_chosen;
  form.bias = form.in_out = true;
  const double gain = config.number("swiglu_alpha"), limit = config.limit("swiglu_limit");
  form.hidden = [gain, limit](const Tensor& projected) { return clamped_swiglu(projected, gain, limit); };
  return form;
}

AttentionForm gpt_oss_attention(const Config& config) {
  AttentionForm form = attention_sizes(config);
  form.bias = form.output_bias = config.flag("attention_bias");
  form.sinks = true;
  form.rope_table = rope_frequencies(config, form.head_size);
  form.windows = layer_windows(config, sliding_layers(config, [](int layer) { return layer % 2 == 0; }));
  return form;
}

Config with_gpt_oss_defaults(const Config& given) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5,
      "hidden_act": "silu", "sliding_window": 128, "attention_bias": true, "num_local_experts": 128,
      "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "rope_theta": 150000})");
  if (config.has("rope_parameters") || config.has("rope_scaling")) return config;
  return config.with_defaults(R"({"rope_scaling": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1,
      "truncate": false, "original_max_position_embeddings": 4096}})");
}

}  // namespace

bool gpt_oss_stores_in_out(const std::string& parameter) {
  return parameter.ends_with(".experts.gate_up_proj") || parameter.ends_with(".experts.down_proj");
}

NamedTensors gpt_oss_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = with_gpt_oss_defaults(given);
  const Decoder decoder(config, inputs);
  const AttentionForm attention = gpt_oss_attention(config);
  const ExpertsForm experts = gpt_oss_experts(config);
  return decoder_stack(
      decoder, stack_form(decoder, config), attention,
      [&](int, const std::string& name, const Tensor& x) { return mixture_of_experts(decoder, experts, name, x); });
}

}  // namespace jerboa::models
