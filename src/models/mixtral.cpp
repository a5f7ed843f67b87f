#include "models/allowed_settings.h"
#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Mixtral: Mistral with a mixture of experts in every layer.
namespace jerboa::models {

NamedTensors mixtral_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000,
      "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2})");
  allow_only(config, R"({"attention_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm attention = attention_form(config);
  attention.windows = equal_windows(config);
  ExpertsForm experts = experts_form(config, config.count("num_local_experts"), "intermediate_size");
  experts.normalised = true;
  StackForm stack = stack_form(decoder, config);
  stack.mlp = "block_sparse_moe";
  return decoder_stack(decoder, stack, attention, [&](int, const std::string& name, const Tensor& x) {
    return mixture_of_experts(decoder, experts, name, x);
  });
}

}  // namespace jerboa::models
