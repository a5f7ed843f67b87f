#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/qwen_moe.h"
#include "models/windows.h"

// Qwen2-MoE (Qwen1.5-MoE): Qwen2's attention, and in most layers a mixture of experts with one expert that every token
// uses.
namespace jerboa::models {
namespace {

// If the file has no layer_types, every other layer up to max_window_layers has a window.
std::vector<int> qwen2_moe_windows(const Config& config) {
  const auto none = [](int) { return false; };
  if (!config.flag("use_sliding_window")) return std::vector<int>(sliding_layers(config, none).size(), 0);
  const int last = config.integer("max_window_layers");
  return layer_windows(config, sliding_layers(config, [&](int layer) { return layer % 2 == 0 && layer < last; }));
}

}  // namespace

NamedTensors qwen2_moe_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 16, "num_experts_per_tok": 4,
      "num_experts": 60, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "hidden_act": "silu",
      "qkv_bias": true, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})");
  const Decoder decoder(config, inputs);
  AttentionForm attention = attention_form(config);
  attention.bias = config.flag("qkv_bias");
  attention.windows = qwen2_moe_windows(config);
  const ExpertsForm experts = qwen_experts(config);
  const auto is_sparse = qwen_sparse_layers(config);
  return decoder_stack(decoder, stack_form(decoder, config), attention,
                       [&](int layer, const std::string& name, const Tensor& x) {
                         return is_sparse(layer) ? qwen_shared_mixture(decoder, config, experts, name, x)
                                                 : gated_mlp(decoder, config, name, x);
                       });
}

}  // namespace jerboa::models
