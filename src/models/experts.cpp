#include "models/experts.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/lowest_score.h>

namespace jerboa::models {
namespace {

/// Lowers the scores of experts outside a token's best groups below all others.
Tensor within_best_groups(const ExpertsForm& form, const Tensor& scores) {
  const Tensor grouped = reshape(scores, {-1, form.groups, form.count / form.groups});
  const Tensor merits = sum(top_k(grouped, 2).values, {-1});
  const Tensor best = top_k(merits, form.chosen_groups).indices;
  const Tensor used = sum(one_hot(best, form.groups), {1});
  return reshape(where(greater(unsqueeze(used, {-1}), 0), grouped, lowest_score), scores.shape());
}

/// The experts with the best scores, and these scores.
TopK choose(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& scores) {
  const bool grouped = form.chosen_groups < form.groups;
  if (form.correction.empty() && !grouped) return top_k(scores, form.chosen);
  Tensor merits = scores;
  if (!form.correction.empty())
    merits = merits + decoder.vector(fmt::format("{}.{}", name, form.correction), {form.count}, 0);
  if (grouped) merits = within_best_groups(form, merits);
  const Tensor chosen = top_k(merits, form.chosen).indices;
  return {take_along_axis(scores, chosen), chosen};
}

/// The offset of each expert's rows among rows sorted by expert; the last expert's end comes last.
Tensor group_offsets(const Tensor& experts, int count) {
  const Tensor column = unsqueeze(experts, {1});
  return sum(cast(less(column, arange(count + 1)), DType::i32), {0});
}

/// Rows sorted by expert.
struct Sorted {
  Tensor rows, offsets, experts;
};

/// A projection of the experts, with a bias if they have any.
Tensor project(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Sorted& sorted,
               int out) {
  const Tensor result = form.in_out ? decoder.expert_linear_in_out(name, sorted.rows, sorted.offsets, form.count, out)
                                    : decoder.expert_linear(name, sorted.rows, sorted.offsets, form.count, out);
  if (!form.bias) return result;
  return result + embedding(decoder.vector(name + "_bias", {form.count, out}, 0), sorted.experts);
}

/// The MLPs of all experts.
Tensor expert_mlps(const Decoder& decoder, const ExpertsForm& form, const std::string& name, Sorted sorted) {
  const int width = static_cast<int>(sorted.rows.dim(-1).value());
  const int first = form.gated ? 2 * form.inner : form.inner;
  sorted.rows = form.hidden(project(decoder, form, fmt::format("{}.{}", name, form.up), sorted, first));
  return project(decoder, form, fmt::format("{}.{}", name, form.down), sorted, width);
}

std::vector<std::string> parts_named(const std::string& parameter, const Shape& shape,
                                     const std::array<const char*, 3>& names) {
  const auto& [gate, up, down] = names;
  std::vector<const char*> parts;
  if (parameter.ends_with(".experts.gate_up_proj")) parts = {gate, up};
  if (parameter.ends_with(".experts.up_proj")) parts = {up};
  if (parameter.ends_with(".experts.down_proj")) parts = {down};
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  std::vector<std::string> tensors;
  for (std::int64_t expert = 0; !parts.empty() && expert < shape.front().value(); ++expert)
    for (const char* part : parts) tensors.push_back(fmt::format("{}.{}.{}.weight", module, expert, part));
  return tensors;
}

}  // namespace

ExpertsForm experts_form(const Config& config, int count, const std::string& inner_key) {
  ExpertsForm form{
      .count = count, .chosen = config.size("num_experts_per_tok"), .inner = config.size(inner_key), .hidden = {}};
  if (form.chosen > count)
    throw FileError(
        fmt::format("{}: num_experts_per_tok is {}, but there are {} experts", config.origin(), form.chosen, count));
  // All experts of a layer form one tensor, whose size must not overflow.
  if (std::int64_t{form.inner} * config.size("hidden_size") > std::int64_t{1} << 48)
    config.fail(inner_key, fmt::format("is too large for hidden_size {}", config.size("hidden_size")));
  form.hidden = gated_halves(config);
  return form;
}

std::function<Tensor(const Tensor&)> gated_halves(const Config& config, const std::string& key) {
  return [config, key](const Tensor& projected) {
    const auto [gate, up] = split<2>(projected);
    return activation(config, key, gate) * up;
  };
}

TopK route(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens) {
  const Tensor logits =
      decoder.linear_f32(fmt::format("{}.{}", name, form.router), tokens, form.count, form.router_bias);
  TopK best;
  switch (form.scores) {
    case ExpertScores::softmax: best = choose(decoder, form, name, softmax(logits)); break;
    case ExpertScores::sigmoid: best = choose(decoder, form, name, sigmoid(logits)); break;
    case ExpertScores::softmax_of_chosen:
      best = choose(decoder, form, name, logits);
      best.values = softmax(best.values);
      break;
  }
  if (form.normalised) {
    const Tensor total = sum(best.values, {-1}, true);
    best.values = best.values / (form.sum_offset > 0 ? total + form.sum_offset : total);
  }
  if (form.scale != 1) best.values = best.values * form.scale;
  return best;
}

Tensor apply_experts(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens,
                     const TopK& routes) {
  const Tensor experts = reshape(routes.indices, {-1});
  const Tensor order = argsort(experts);
  Sorted sorted;
  sorted.rows = embedding(tokens, order / form.chosen);  // each token once per expert
  sorted.offsets = group_offsets(experts, form.count);
  if (form.bias) sorted.experts = take_along_axis(experts, order, 0);
  const Tensor results = expert_mlps(decoder, form, name, sorted);
  const Tensor found = reshape(embedding(results, argsort(order)), {tokens.dim(0), form.chosen, tokens.dim(1)});
  return sum(found * unsqueeze(routes.values, {-1}), {1});
}

Tensor mixture_of_experts(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& x) {
  const Tensor tokens = reshape(x, {-1, x.dim(-1)});
  const TopK routes = route(decoder, form, name, tokens);
  return reshape(apply_experts(decoder, form, name + ".experts", tokens, routes), x.shape()).named(name);
}

std::vector<std::string> expert_parts(const std::string& parameter, const Shape& shape) {
  return parts_named(parameter, shape, {"gate_proj", "up_proj", "down_proj"});
}

std::vector<std::string> mixtral_expert_parts(const std::string& parameter, const Shape& shape) {
  return parts_named(parameter, shape, {"w1", "w3", "w2"});
}

}  // namespace jerboa::models
