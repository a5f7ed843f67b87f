#include "models/deepseek_experts.h"

#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/llama_like.h"

namespace jerboa::models {
namespace {

void read_groups(const Config& config, ExpertsForm& form) {
  form.groups = config.size("n_group", 1);
  form.chosen_groups = config.size("topk_group", 1);
  if (form.chosen_groups > form.groups) config.fail("topk_group", fmt::format("is above n_group {}", form.groups));
  if (form.chosen_groups == form.groups) return;
  if (form.count % form.groups != 0 || form.count < 2 * form.groups)
    config.fail("n_group", fmt::format("does not divide {} experts into equal groups of two or more", form.count));
  if (form.chosen > form.chosen_groups * (form.count / form.groups))
    config.fail("num_experts_per_tok",
                fmt::format("is more than {} groups of experts have (topk_group)", form.chosen_groups));
}

}  // namespace

ExpertsForm deepseek_experts(const Config& config) {
  allow_only(config, R"({"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1})");
  ExpertsForm form = experts_form(config, config.count("n_routed_experts"));
  form.scores = ExpertScores::sigmoid;
  form.correction = "gate.e_score_correction_bias";
  form.normalised = config.flag("norm_topk_prob", true);
  form.sum_offset = 1e-20;
  form.scale = config.number("routed_scaling_factor", 1);
  read_groups(config, form);
  return form;
}

Tensor deepseek_mixture(const Decoder& decoder, const Config& config, const ExpertsForm& form, const std::string& name,
                        const Tensor& x) {
  const Tensor routed = mixture_of_experts(decoder, form, name, x);
  return routed +
         gated_mlp_of(decoder, config, name + ".shared_experts", x, form.inner * config.count("n_shared_experts"));
}

Tensor deepseek_mlp(const Decoder& decoder, const Config& config, const ExpertsForm& form, int layer,
                    const std::string& name, const Tensor& x) {
  if (layer >= config.integer("first_k_dense_replace")) return deepseek_mixture(decoder, config, form, name, x);
  return gated_mlp_of(decoder, config, name, x, config.size("intermediate_size"));
}

}  // namespace jerboa::models
