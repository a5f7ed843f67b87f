#include "models/experts.h"

#include <fmt/format.h>

namespace jerboa::models {
namespace {

/// The experts that each token is routed to, and their weights: [tokens, chosen].
TopK route(const Decoder& decoder, const ExpertsForm& form, const std::string& name, const Tensor& tokens) {
  TopK best = top_k(softmax(decoder.linear_f32(name + ".gate", tokens, form.count, false)), form.chosen);
  if (form.normalised) best.values = best.values / sum(best.values, {-1}, true);
  return best;
}

/// The offsets of each expert's rows among rows sorted by expert, and the end of the last.
Tensor group_offsets(const Tensor& experts, int count) {
  const Tensor column = unsqueeze(experts, {1});
  return sum(cast(less(column, arange(count + 1)), DType::i32), {0});
}

/// The gated MLPs of all experts, over rows sorted by expert.
Tensor expert_mlps(const Decoder& decoder, const Config& config, const ExpertsForm& form, const std::string& name,
                   const Tensor& rows, const Tensor& offsets) {
  const int width = static_cast<int>(rows.dim(-1).value());
  const auto [gate, up] =
      split<2>(decoder.expert_linear(name + ".gate_up_proj", rows, offsets, form.count, 2 * form.inner));
  return decoder.expert_linear(name + ".down_proj", activation(config, "hidden_act", gate) * up, offsets, form.count,
                               width);
}

}  // namespace

Tensor mixture_of_experts(const Decoder& decoder, const Config& config, const ExpertsForm& form,
                          const std::string& name, const Tensor& x) {
  const Tensor tokens = reshape(x, {-1, x.dim(-1)});
  const TopK best = route(decoder, form, name, tokens);
  const Tensor experts = reshape(best.indices, {-1});
  const Tensor order = argsort(experts);
  const Tensor rows = embedding(tokens, order / form.chosen);  // each token once per expert
  const Tensor sorted = expert_mlps(decoder, config, form, name + ".experts", rows, group_offsets(experts, form.count));
  const Tensor found = reshape(embedding(sorted, argsort(order)), {tokens.dim(0), form.chosen, x.dim(-1)});
  return reshape(sum(found * unsqueeze(best.values, {-1}), {1}), x.shape()).named(name);
}

std::vector<std::string> expert_parts(const std::string& parameter, const Shape& shape) {
  const bool in = parameter.ends_with(".experts.gate_up_proj");
  if (!in && !parameter.ends_with(".experts.down_proj")) return {};
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  std::vector<std::string> parts;
  for (std::int64_t expert = 0; expert < shape.front().value(); ++expert)
    for (const char* part : in ? std::vector{"gate_proj", "up_proj"} : std::vector{"down_proj"})
      parts.push_back(fmt::format("{}.{}.{}.weight", module, expert, part));
  return parts;
}

}  // namespace jerboa::models
