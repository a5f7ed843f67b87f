#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// OLMoE: norms over the queries and the keys of all heads together, and a mixture of experts in every layer.
namespace jerboa::models {

NamedTensors olmoe_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"rms_norm_eps": 1e-5, "hidden_act": "silu", "num_experts": 64,
                                                "num_experts_per_tok": 8})");
  const Decoder decoder(config, inputs);
  AttentionForm attention = attention_form(config);
  attention.bias = attention.output_bias = config.flag("attention_bias", false);
  attention.projection_norm = llama_norm(decoder, config);
  attention.clip = config.limit("clip_qkv");
  ExpertsForm experts = experts_form(config, config.count("num_experts"), "intermediate_size");
  experts.normalised = config.flag("norm_topk_prob", false);
  return decoder_stack(
      decoder, stack_form(decoder, config), attention,
      [&](int, const std::string& name, const Tensor& x) { return mixture_of_experts(decoder, experts, name, x); });
}

}  // namespace jerboa::models
