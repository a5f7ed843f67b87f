#include <fmt/format.h>

#include <jerboa/ops/ops.h>
#include <jerboa/ops/reserved_state.h>
#include <jerboa/transform/loss_scaling.h>

namespace jerboa {
namespace {

Tensor scale_state(const LossScaling& scaling) {
  const Graph& graph = current_graph("loss_scale");
  const TensorId known = graph.find(loss_scale_state);
  if (known != no_tensor) return {graph.identity(), known};
  return detail::reserved_state(loss_scale_state, {}, DType::f32, Init::constant(scaling.initial));
}

}  // namespace

Tensor loss_scale(const LossScaling& scaling) {
  if (!(scaling.initial > 0) || !(scaling.least > 0) || scaling.growth_interval < 1)
    throw UsageError(
        fmt::format("loss scaling from {} down to {}, growing every {} updates: scales must be positive, and the "
                    "interval at least 1",
                    scaling.initial, scaling.least, scaling.growth_interval));
  return scale_state(scaling);
}

Tensor are_finite(const std::vector<ParamGrad>& grads) {
  std::vector<Operand> all;
  for (const auto& [param, grad] : grads) all.emplace_back(grad);
  return all_finite(all.empty() ? scalar(0) : sum_squares(all));
}

void update_loss_scale(const Tensor& finite, const LossScaling& scaling) {
  const Tensor scale = scale_state(scaling);
  const Tensor age = detail::reserved_state(loss_scale_age_state, {}, DType::i32);
  const Tensor older = age + 1;
  const Tensor grows = older >= scaling.growth_interval;
  update(scale, where(finite, where(grows, scale * 2, scale), maximum(scale * 0.5, scaling.least)));
  update(age, where(logical_and(finite, logical_not(grows)), older, 0));
}

void update_only_if(const Tensor& condition, std::size_t first) {
  Graph& graph = current_graph("update_only_if");
  for (std::size_t i = first; i < graph.updates.size(); ++i) {
    const Update update = graph.updates[i];
    const Tensor next(graph.identity(), update.value), last(graph.identity(), update.target);
    graph.updates[i].value = where(condition, next, last).id();
  }
}

}  // namespace jerboa
