#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Qwen3-MoE: Qwen3's attention, and in most layers a mixture of experts in place of the MLP.
namespace jerboa::models {
namespace {

// Later versions of transformers write num_experts under another name.
int expert_count(const Config& config) {
  return config.count(config.has("num_experts") ? "num_experts" : "num_local_experts");
}

ExpertsForm experts_form(const Config& config) {
  const ExpertsForm form{.count = expert_count(config),
                         .chosen = config.size("num_experts_per_tok"),
                         .inner = config.size("moe_intermediate_size"),
                         .normalised = config.flag("norm_topk_prob", false)};
  if (form.chosen > form.count)
    throw FileError(fmt::format("{}: num_experts_per_tok is {}, but there are {} experts", config.origin(), form.chosen,
                                form.count));
  // All of one layer's experts are one tensor.
  if (std::int64_t{form.inner} * config.size("hidden_size") > std::int64_t{1} << 48)
    config.fail("moe_intermediate_size", fmt::format("is too large for hidden_size {}", config.size("hidden_size")));
  return form;
}

std::function<bool(int layer)> sparse_layers(const Config& config) {
  const int step = config.size("decoder_sparse_step", 1);
  const auto dense = config.has("mlp_only_layers") ? config.integers("mlp_only_layers") : std::vector<int>();
  return
      [=](int layer) { return (layer + 1) % step == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end(); };
}

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
  const ExpertsForm experts = experts_form(config);
  const auto is_sparse = sparse_layers(config);
  return llama_like(
      decoder, config,
      [&](int layer, const std::string& name, const Tensor& x) {
        return self_attention(decoder, attention, layer, name, x);
      },
      [&](int layer, const std::string& name, const Tensor& x) {
        return is_sparse(layer) ? mixture_of_experts(decoder, config, experts, name, x)
                                : gated_mlp(decoder, config, name, x);
      });
}

}  // namespace jerboa::models
