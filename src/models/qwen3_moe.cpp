#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/qwen_moe.h"
#include "models/windows.h"

// Qwen3-MoE: Qwen3's attention, and in most layers a mixture of experts in place of the MLP.
namespace jerboa::models {
namespace {

AttentionForm qwen3_moe_attention(const Decoder& decoder, const Config& config) {
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.head_norm = llama_norm(decoder, config);
  if (config.flag("use_sliding_window", false)) form.windows = equal_windows(config);
  return form;
}

}  // namespace

NamedTensors qwen3_moe_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 4, "sliding_window": 4096})");
  const Decoder decoder(config, inputs);
  const AttentionForm attention = qwen3_moe_attention(decoder, config);
  const ExpertsForm experts = qwen_experts(config);
  const auto is_sparse = qwen_sparse_layers(config);
  return decoder_stack(
      decoder, stack_form(decoder, config), attention, [&](int layer, const std::string& name, const Tensor& x) {
        return is_sparse(layer) ? mixture_of_experts(decoder, experts, name, x) : gated_mlp(decoder, config, name, x);
      });
}

}  // namespace jerboa::models
