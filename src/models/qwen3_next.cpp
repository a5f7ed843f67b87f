#include "models/delta_net.h"
#include "models/family_graphs.h"
#include "models/qwen_moe.h"

// Qwen3-Next: the gated delta rule and gated attention, and mixtures of experts.
namespace jerboa::models {
namespace {

// Two products, with all features of a key head side by side.
DeltaProjections joint_projections(const Decoder& decoder, const DeltaForm& form, const std::string& name,
                                   const Tensor& x) {
  const int keys = form.key_heads * form.key_size, values = form.value_heads * form.value_size;
  const int share = form.value_heads / form.key_heads, value_features = share * form.value_size;
  const auto by_head = [&](const Tensor& all) { return reshape(all, {x.dim(0), x.dim(1), form.key_heads, -1}); };
  const auto flat = [&](const Tensor& part, int size) { return reshape(part, {x.dim(0), x.dim(1), size}); };
  const auto large = split(by_head(decoder.linear(name + ".in_proj_qkvz", x, 2 * keys + 2 * values, false)),
                           {form.key_size, form.key_size, value_features, value_features});
  const auto small =
      split(by_head(decoder.linear_f32(name + ".in_proj_ba", x, 2 * form.value_heads, false)), {share, share});
  const Tensor q = flat(large[0], keys), k = flat(large[1], keys), v = flat(large[2], values);
  DeltaProjections parts;
  parts.mixed = concat({q, k, v});
  parts.gate = flat(large[3], values);
  parts.strength = flat(small[0], form.value_heads);
  parts.step = flat(small[1], form.value_heads);
  return parts;
}

}  // namespace

NamedTensors qwen3_next_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = delta_net_config(given.with_defaults(R"({"num_experts": 512, "num_experts_per_tok": 10,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true})"));
  const Decoder decoder(config, inputs);
  DeltaForm form = delta_form(config);
  form.project = [&decoder, sizes = form](const std::string& name, const Tensor& x) {
    return joint_projections(decoder, sizes, name, x);
  };
  const ExpertsForm experts = qwen_experts(config);
  const auto is_sparse = qwen_sparse_layers(config);
  return delta_net_stack(decoder, config, form, [&](int layer, const std::string& name, const Tensor& x) {
    return is_sparse(layer) ? qwen_shared_mixture(decoder, config, experts, name, x)
                            : gated_mlp_of(decoder, config, name, x, config.size("intermediate_size"));
  });
}

}  // namespace jerboa::models
