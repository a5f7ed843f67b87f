#include "models/qwen_moe.h"

#include <algorithm>

#include "models/llama_like.h"

namespace jerboa::models {

ExpertsForm qwen_experts(const Config& config) {
  // Newer versions of transformers write num_local_experts.
  ExpertsForm form =
      experts_form(config, config.count(config.has("num_experts") ? "num_experts" : "num_local_experts"));
  form.normalised = config.flag("norm_topk_prob", false);
  return form;
}

std::function<bool(int layer)> qwen_sparse_layers(const Config& config) {
  const int step = config.size("decoder_sparse_step", 1);
  const auto dense = config.has("mlp_only_layers") ? config.integers("mlp_only_layers") : std::vector<int>();
  return
      [=](int layer) { return (layer + 1) % step == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end(); };
}

Tensor qwen_shared_mixture(const Decoder& decoder, const Config& config, const ExpertsForm& form,
                           const std::string& name, const Tensor& x) {
  const Tensor routed = mixture_of_experts(decoder, form, name, x);
  const Tensor shared =
      gated_mlp_of(decoder, config, name + ".shared_expert", x, config.size("shared_expert_intermediate_size"));
  return routed + sigmoid(decoder.linear_f32(name + ".shared_expert_gate", x, 1, false)) * shared;
}

}  // namespace jerboa::models
