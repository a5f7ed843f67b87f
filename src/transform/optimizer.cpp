#include <fmt/format.h>

#include <jerboa/ops/ops.h>
#include <jerboa/transform/optimizer.h>

namespace jerboa {

Tensor ParamUpdate::state(const std::string& name, Init init) {
  const Tensor made = state_input(name + "/" + param.name(), param.shape(), param.dtype(), init);
  states_.emplace_back(name, made);
  return made;
}

void ParamUpdate::set_state(const std::string& name, Operand value) {
  for (const auto& [known, tensor] : states_)
    if (known == name) return update(tensor, value);
  throw UsageError(
      fmt::format("set_state: the optimizer has no state {} for {}; call state() first", name, param.name()));
}

namespace {

double decay_of(const ParamUpdate& p, double weight_decay, const DecayFilter& filter) {
  const bool wanted = filter ? filter(p.param.name()) : p.decay;
  return wanted ? weight_decay : 0;
}

Tensor adam_rule(ParamUpdate& p, const AdamAttrs& attrs) {
  const Tensor m = p.state("adam_m");
  const Tensor v = p.state("adam_v");
  const auto next = adam_update(p.param, p.grad, m, v, p.lr, p.step, attrs);
  p.set_state("adam_m", next.m);
  p.set_state("adam_v", next.v);
  return next.param;
}

}  // namespace

Adam::operator Optimizer() const {
  const AdamAttrs attrs{beta1, beta2, eps, 0};
  return {lr, [attrs](ParamUpdate& p) { return adam_rule(p, attrs); }, clip_norm};
}

AdamW::operator Optimizer() const {
  const auto rule = [own = *this](ParamUpdate& p) {
    return adam_rule(p, {own.beta1, own.beta2, own.eps, decay_of(p, own.weight_decay, own.decay)});
  };
  return {lr, rule, clip_norm};
}

Sgd::operator Optimizer() const {
  const auto rule = [own = *this](ParamUpdate& p) {
    const SgdAttrs attrs{own.momentum, decay_of(p, own.weight_decay, own.decay), own.nesterov};
    if (own.momentum == 0) return sgd_update(p.param, p.grad, p.lr, {}, attrs).param;
    const auto next = sgd_update(p.param, p.grad, p.lr, p.state("velocity"), attrs);
    p.set_state("velocity", next.velocity);
    return next.param;
  };
  return {lr, rule, clip_norm};
}

Tensor global_norm(const std::vector<ParamGrad>& grads) {
  std::vector<Operand> all;
  for (const auto& [param, grad] : grads) all.emplace_back(grad);
  return all.empty() ? scalar(0) : sqrt(sum_squares(all));
}

Tensor append_optimizer(const std::vector<ParamGrad>& grads, const Optimizer& optimizer) {
  if (!optimizer.update) throw UsageError("the optimizer has no update rule");
  const Tensor last = state_input(step_state, {}, DType::i32);
  const Tensor step = last + 1;
  update(last, step);
  const Tensor lr = std::holds_alternative<Schedule>(optimizer.lr)
                        ? std::get<Schedule>(optimizer.lr).at(Operand(step))
                        : tensor_input(std::get<HostRate>(optimizer.lr).input, {}, DType::f32);
  Tensor scale;
  // A norm of 0 needs no clipping; the small number keeps the quotient finite.
  if (optimizer.clip_norm > 0) scale = minimum(optimizer.clip_norm / (global_norm(grads) + 1e-6), 1);
  for (const auto& [param, grad] : grads) {
    const bool decay = current_graph("append_optimizer").tensor(param.id()).decay;
    ParamUpdate p;
    p.param = param;
    p.grad = scale ? grad * cast(scale, grad.dtype()) : grad;
    p.lr = lr;
    p.step = step;
    p.decay = decay;
    update(param, optimizer.update(p));
  }
  return lr;
}

}  // namespace jerboa
