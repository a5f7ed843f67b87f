#include <fmt/format.h>
#include <limits>

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

// The smallest scale that GPUs do not flush to zero.
constexpr double smallest_loss_scale = std::numeric_limits<float>::min();

void check_scale(const char* option, double scale) {
  if (!is_loss_scale(scale))
    throw UsageError(fmt::format("loss_scaling.{} is {}, but a loss's scale must be from {:.4g} to {:.4g}", option,
                                 scale, smallest_loss_scale, largest_loss_scale));
}

void check(const LossScaling& scaling) {
  check_scale("initial", scaling.initial);
  check_scale("least", scaling.least);
  if (scaling.least > scaling.initial)
    throw UsageError(fmt::format("loss_scaling.least is {}, which is more than loss_scaling.initial, {}", scaling.least,
                                 scaling.initial));
  if (scaling.growth_interval < 1)
    throw UsageError(
        fmt::format("loss_scaling.growth_interval is {}, but must be at least 1", scaling.growth_interval));
}

}  // namespace

bool is_loss_scale(double scale) { return scale >= smallest_loss_scale && scale <= largest_loss_scale; }

Tensor loss_scale(const LossScaling& scaling) {
  check(scaling);
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
  const Tensor is_due = older >= scaling.growth_interval;
  const Tensor grows = logical_and(is_due, scale <= largest_loss_scale / 2);
  update(scale, where(finite, where(grows, scale * 2, scale), maximum(scale * 0.5, scaling.least)));
  update(age, where(logical_and(finite, logical_not(is_due)), older, 0));
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
