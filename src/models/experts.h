#pragma once

#include <functional>

#include "models/decoder.h"

namespace jerboa::models {

/// How a router's logits become scores.
enum class ExpertScores : std::uint8_t {
  softmax,           ///< over all experts
  sigmoid,           ///< of each by itself
  softmax_of_chosen  ///< the logits themselves; the weights are a softmax over those of the chosen experts
};

/// A mixture of experts: how its tokens are routed, and what its experts compute.
struct ExpertsForm {
  int count = 1;   ///< experts in all
  int chosen = 1;  ///< experts per token
  int inner = 1;   ///< hidden width of each

  std::string router = "gate";  ///< the module that scores the experts
  bool router_bias = false;
  ExpertScores scores = ExpertScores::softmax;
  /// A parameter [count] of the module that is added to scores to choose experts, but not to weigh them; empty: none.
  std::string correction = {};
  int groups = 1;           ///< equal parts of the experts,
  int chosen_groups = 1;    ///< of which a token uses those whose two best experts have the highest sum of scores
  bool normalised = false;  ///< the weights of the chosen experts are divided by their sum,
  double sum_offset = 0;    ///< plus this
  double scale = 1;         ///< of the weights

  std::string up = "gate_up_proj", down = "down_proj";  ///< the projections
  bool gated = true;                                    ///< the first one is twice as wide as the hidden features
  bool bias = false;                                    ///< of the projections: NAME_bias
  bool in_out = false;                                  ///< projections are [count, in, out]
  std::function<Tensor(const Tensor& projected)> hidden = {};  ///< the hidden features, from the first projection
};

/// The form with this number of experts, checked, and with gated_halves.
ExpertsForm experts_form(const Config& config, int count, const std::string& inner_key = "moe_intermediate_size");
/// activation(first half) * second half, with the config's activation.
std::function<Tensor(const Tensor& projected)> gated_halves(const Config& config,
                                                            const std::string& key = "hidden_act");

/// The experts that the module NAME routes each token [tokens, width] to, and their weights: [tokens, chosen].
TopK route(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens);
/// The weighted sums of what the experts in the module NAME compute from their tokens. Their weights are stacked,
/// `gate_up_proj` [count, 2 inner, width] and `down_proj` [count, width, inner], so that the products of all experts
/// are a single op.
Tensor apply_experts(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens,
                     const TopK& routes);
/// The module NAME with a router, and experts in NAME.experts.
Tensor mixture_of_experts(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& x);

/// The tensors that checkpoints may hold one by one in place of stacked ones: `experts.0.gate_proj.weight`, ….
std::vector<std::string> expert_parts(const std::string& parameter, const Shape& shape);
/// The same with Mixtral's names: `experts.0.w1.weight`, ….
std::vector<std::string> mixtral_expert_parts(const std::string& parameter, const Shape& shape);

}  // namespace jerboa::models
