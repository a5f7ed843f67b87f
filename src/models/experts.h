#pragma once

#include <functional>

#include "models/decoder.h"

namespace jerboa::models {

/// How a router's logits become scores.
enum class ExpertScores : std::uint8_t {
  softmax,           ///< over all experts
  sigmoid,           ///< of each expert by itself
  softmax_of_chosen  ///< no scores: logits choose the experts, and a softmax over the chosen ones gives the weights
};

/// A mixture of experts: how its tokens are routed, and what its experts compute.
struct ExpertsForm {
  int count = 1;   ///< experts in all
  int chosen = 1;  ///< experts per token
  int inner = 1;   ///< hidden width of each

  std::string router = "gate";  ///< the module that scores the experts
  bool router_bias = false;
  ExpertScores scores = ExpertScores::softmax;
  /// A parameter [count] of the module. It is added to the scores when experts are chosen, but not to their weights;
  /// empty: none.
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

/// The experts that the router in module NAME chooses for each token of [tokens, width], and their weights: both
/// [tokens, chosen].
TopK route(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens);
/// The weighted sums of the chosen experts' outputs, from the experts in module NAME. Their weights are stacked,
/// `gate_up_proj` [count, 2 inner, width] and `down_proj` [count, width, inner], so that one op multiplies with all of
/// them.
Tensor apply_experts(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens,
                     const TopK& routes);
/// A router in module NAME, and experts in NAME.experts.
Tensor mixture_of_experts(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& x);

/// The names under which checkpoints may store the parts of a stacked weight: `experts.0.gate_proj.weight`, ….
std::vector<std::string> expert_parts(const std::string& parameter, const Shape& shape);
/// The same with Mixtral's names: `experts.0.w1.weight`, ….
std::vector<std::string> mixtral_expert_parts(const std::string& parameter, const Shape& shape);

}  // namespace jerboa::models
