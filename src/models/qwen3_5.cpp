#include "models/allowed_settings.h"
#include "models/delta_net.h"
#include "models/family_graphs.h"
#include "models/qwen_moe.h"

// Qwen3.5's text models: the gated delta rule and gated attention, with an MLP or a mixture of experts.
namespace jerboa::models {
namespace {

DeltaForm qwen3_5_form(const Decoder& decoder, const Config& config) {
  DeltaForm form = delta_form(config);
  form.project = [&decoder, sizes = form](const std::string& name, const Tensor& x) {
    return separate_projections(decoder, sizes, name, x);
  };
  return form;
}

}  // namespace

NamedTensors qwen3_5_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = delta_net_config(given.with_defaults(R"({"num_key_value_heads": 4})"));
  const Decoder decoder(config, inputs);
  const DeltaForm form = qwen3_5_form(decoder, config);
  return delta_net_stack(decoder, config, form, [&](int, const std::string& name, const Tensor& x) {
    return gated_mlp_of(decoder, config, name, x, config.size("intermediate_size"));
  });
}

NamedTensors qwen3_5_moe_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = delta_net_config(given.with_defaults(R"({"num_experts": 256, "num_experts_per_tok": 8,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})"));
  allow_only(config, R"({"norm_topk_prob": true, "mlp_only_layers": [], "decoder_sparse_step": 1})");
  const Decoder decoder(config, inputs);
  const DeltaForm form = qwen3_5_form(decoder, config);
  ExpertsForm experts = qwen_experts(config);
  experts.normalised = true;
  return delta_net_stack(decoder, config, form, [&](int, const std::string& name, const Tensor& x) {
    return qwen_shared_mixture(decoder, config, experts, name, x);
  });
}

}  // namespace jerboa::models
