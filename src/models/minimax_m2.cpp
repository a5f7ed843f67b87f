#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// MiniMax-M2: norms over the queries and the keys of all heads together, and a mixture of experts with sigmoid scores
// in every layer.
namespace jerboa::models {
namespace {

// The authors' own files have `rotary_dim` in place of transformers' `partial_rotary_factor`.
Config with_rotary_factor(const Config& config) {
  if (!config.has("rotary_dim") || config.section("rope_parameters")) return config;
  const double part = static_cast<double>(config.size("rotary_dim")) / config.size("head_dim");
  if (part > 1) config.fail("rotary_dim", "is above head_dim");
  return config.with_defaults(fmt::format(R"({{"partial_rotary_factor": {}}})", part));
}

}  // namespace

NamedTensors minimax_m2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = with_rotary_factor(
      given.with_defaults(R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5000000, "hidden_act": "silu",
                              "num_local_experts": 256, "num_experts_per_tok": 8})"));
  allow_only(config, R"({"scoring_func": "sigmoid", "use_routing_bias": true, "use_qk_norm": true,
      "qk_norm_type": "per_layer", "shared_intermediate_size": 0, "attention_bias": false,
      "layernorm_full_attention_beta": 1, "layernorm_mlp_beta": 1})");
  const Decoder decoder(config, inputs);
  AttentionForm attention = attention_form(config);
  attention.projection_norm = llama_norm(decoder, config);
  ExpertsForm experts = experts_form(config, config.count("num_local_experts"), "intermediate_size");
  experts.scores = ExpertScores::sigmoid;
  experts.correction = "e_score_correction_bias";
  experts.normalised = true;
  StackForm stack = stack_form(decoder, config);
  stack.mlp = "block_sparse_moe";
  return decoder_stack(decoder, stack, attention, [&](int, const std::string& name, const Tensor& x) {
    return mixture_of_experts(decoder, experts, name, x);
  });
}

}  // namespace jerboa::models
