#include "models/deepseek_experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// GLM-4.5 and later: half of each head is rotated, and most layers have DeepSeek's mixture of experts.
namespace jerboa::models {

NamedTensors glm4_moe_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu",
      "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_routed_experts": 128,
      "n_shared_experts": 1, "first_k_dense_replace": 1})");
  const Decoder decoder(config, inputs);
  AttentionForm attention = attention_form(config);
  attention.bias = config.flag("attention_bias", false);
  if (config.flag("use_qk_norm", false)) attention.head_norm = llama_norm(decoder, config);
  const ExpertsForm experts = deepseek_experts(config);
  return decoder_stack(decoder, stack_form(decoder, config), attention,
                       [&](int layer, const std::string& name, const Tensor& x) {
                         return deepseek_mlp(decoder, config, experts, layer, name, x);
                       });
}

}  // namespace jerboa::models
