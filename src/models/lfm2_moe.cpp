#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/lfm2.h"

// LFM2-MoE: LFM2 with a mixture of experts in all but the first layers.
namespace jerboa::models {
namespace {

ExpertsForm lfm2_experts(const Config& config) {
  ExpertsForm form = experts_form(config, config.count("num_experts"));
  form.scores = ExpertScores::sigmoid;
  if (config.flag("use_expert_bias")) form.correction = "expert_bias";
  form.normalised = config.flag("norm_topk_prob");
  form.sum_offset = 1e-6;
  form.scale = config.number("routed_scaling_factor", 1);
  return form;
}

}  // namespace

NamedTensors lfm2_moe_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = lfm2_config(given).with_defaults(R"({"moe_intermediate_size": 1792, "num_dense_layers": 2,
      "num_experts": 32, "num_experts_per_tok": 4, "use_expert_bias": true, "norm_topk_prob": true})");
  const Decoder decoder(config, inputs);
  const ExpertsForm experts = lfm2_experts(config);
  const int dense = config.integer("num_dense_layers");
  return lfm2_stack(decoder, config, [&](int layer, const std::string& name, const Tensor& x) {
    return layer < dense ? lfm2_mlp(decoder, config.size("intermediate_size"), name, x)
                         : mixture_of_experts(decoder, experts, name, x);
  });
}

}  // namespace jerboa::models
