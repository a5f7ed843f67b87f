#include <cmath>
#include <fmt/format.h>

#include <jerboa/ops/ops.h>
#include <jerboa/ops/reserved_state.h>
#include <jerboa/transform/optimizer.h>

namespace jerboa {

namespace {

std::string prefix_of(const std::string& optimizer) { return optimizer.empty() ? "" : optimizer + "/"; }

std::string in_parentheses(const std::string& site) { return site.empty() ? "" : " (" + site + ")"; }

}  // namespace

std::string step_state_of(const std::string& optimizer) { return prefix_of(optimizer) + step_state; }

bool is_step_counter(std::string_view state) {
  return state == step_state || state.ends_with("/" + std::string(step_state));
}

std::optional<std::string> state_owner(const std::string& state,
                                       const std::function<bool(const std::string& name)>& is_param) {
  for (auto slash = state.find('/'); slash != std::string::npos; slash = state.find('/', slash + 1))
    if (const std::string rest = state.substr(slash + 1); is_param(rest)) return rest;
  return std::nullopt;
}

Tensor ParamUpdate::state(const std::string& state, Init init, const char* file, int line) {
  const Tensor made =
      state_input(prefix_of(optimizer) + state + "/" + name, param.shape(), DType::f32, init, file, line);
  states_.emplace_back(state, made);
  return made;
}

void ParamUpdate::set_state(const std::string& state, Operand value) {
  for (const auto& [known, tensor] : states_)
    if (known == state) return update(Operand(tensor, value.site().file, value.site().line), value);
  throw UsageError(fmt::format("set_state: the optimizer has no state {} for {}; call state() first", state, name));
}

namespace {

double decay_of(const ParamUpdate& p, double weight_decay, const DecayFilter& filter) {
  const bool wanted = filter ? filter(p.name) : p.decay;
  return wanted ? weight_decay : 0;
}

struct OptionRange {
  const char* option;
  double value;
  const char* range;
  bool within;
};

void check_options(const ParamUpdate& p, std::initializer_list<OptionRange> options) {
  for (const auto& [option, value, range, within] : options)
    if (!within || !std::isfinite(value))
      throw UsageError(
          fmt::format("append_optimizer: {} is {}, but must be {}{}", option, value, range, in_parentheses(p.site)));
}

OptionRange at_least_0(const char* option, double value) { return {option, value, "0 or more and finite", value >= 0}; }
OptionRange below_1(const char* option, double value) {
  return {option, value, "at least 0 and less than 1", value >= 0 && value < 1};
}

Tensor adam_rule(ParamUpdate& p, const AdamAttrs& attrs) {
  check_options(p, {below_1("beta1", attrs.beta1), below_1("beta2", attrs.beta2), at_least_0("eps", attrs.eps)});
  const SiteScope scope(p.site);
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
  return {lr, [attrs](ParamUpdate& p) { return adam_rule(p, attrs); }, clip_norm, name};
}

AdamW::operator Optimizer() const {
  const auto rule = [options = *this](ParamUpdate& p) {
    check_options(p, {at_least_0("weight_decay", options.weight_decay)});
    return adam_rule(p, {options.beta1, options.beta2, options.eps, decay_of(p, options.weight_decay, options.decay)});
  };
  return {lr, rule, clip_norm, name};
}

Sgd::operator Optimizer() const {
  const auto rule = [options = *this](ParamUpdate& p) {
    check_options(p, {below_1("momentum", options.momentum), at_least_0("weight_decay", options.weight_decay)});
    const SiteScope scope(p.site);
    const SgdAttrs attrs{options.momentum, decay_of(p, options.weight_decay, options.decay), options.nesterov};
    if (options.momentum == 0) return sgd_update(p.param, p.grad, p.lr, {}, attrs).param;
    const auto next = sgd_update(p.param, p.grad, p.lr, p.state("velocity"), attrs);
    p.set_state("velocity", next.velocity);
    return next.param;
  };
  return {lr, rule, clip_norm, name};
}

Tensor global_norm(const std::vector<ParamGrad>& grads, const char* file, int line) {
  const SiteScope scope(CallSite{file, line});
  std::vector<Operand> all;
  for (const auto& [param, grad] : grads) all.emplace_back(grad);
  return all.empty() ? scalar(0) : sqrt(sum_squares(all));
}

namespace {

void check_name(const std::string& optimizer, const std::string& site) {
  if (const std::string why = detail::why_reserved(prefix_of(optimizer)); !why.empty())
    throw UsageError(fmt::format("append_optimizer: the optimizer's name {} is reserved: {}; choose another{}",
                                 optimizer, why, in_parentheses(site)));
}

// Increments the step counter and returns it.
Tensor count_step(const Optimizer& optimizer, const std::string& site) {
  const std::string counter = step_state_of(optimizer.name);
  const Graph& graph = current_graph("append_optimizer");
  if (const TensorId known = graph.find(counter); known != no_tensor && graph.tensor(known).storage == Storage::state)
    throw UsageError(
        fmt::format("append_optimizer: the graph already has an optimizer {}; give each its own name: Adam{{.name = "
                    "\"generator\"}}{}",
                    optimizer.name.empty() ? "without a name" : "named " + optimizer.name, in_parentheses(site)));
  const Tensor last = detail::reserved_state(counter, {}, DType::i32);
  const Tensor step = last + 1;
  update(last, step);
  return step;
}

// Several optimizers may share a rate from the host.
Tensor host_rate(const std::string& input) {
  Graph& graph = current_graph("append_optimizer");
  const TensorId known = graph.find(input);
  const bool is_there = known != no_tensor && graph.tensor(known).storage == Storage::input &&
                        graph.type(known) == TensorType{DType::f32, {}};
  const Tensor rate = is_there ? Tensor(graph.identity(), known) : tensor_input(input, {}, DType::f32);
  graph.tensor(rate.id()).is_rate = true;  // so that sessions check it, whatever the optimizer computes with it
  return rate;
}

}  // namespace

Tensor append_optimizer(const std::vector<ParamGrad>& grads, const Optimizer& optimizer, const char* file, int line,
                        const Tensor& factor) {
  if (!optimizer.update) throw UsageError("the optimizer has no update rule");
  const CallSite site{file, line};
  ParamUpdate common;
  Tensor scale = factor;
  {
    const SiteScope scope(site);
    common.optimizer = optimizer.name;
    common.site = detail::site_text(site);
    check_name(optimizer.name, common.site);
    check_options(common, {at_least_0("clip_norm", optimizer.clip_norm)});
    common.step = count_step(optimizer, common.site);
    common.lr = std::holds_alternative<Schedule>(optimizer.lr)
                    ? std::get<Schedule>(optimizer.lr).at(Operand(common.step))
                    : host_rate(std::get<HostRate>(optimizer.lr).input);
    // A norm of 0 needs no clipping; the small number keeps the quotient finite.
    if (optimizer.clip_norm > 0) {
      const Tensor norm = factor ? global_norm(grads) * factor : global_norm(grads);
      const Tensor clip = minimum(optimizer.clip_norm / (norm + 1e-6), 1);
      scale = factor ? clip * factor : clip;
    }
  }
  for (const auto& [param, grad] : grads) {
    ParamUpdate p = common;
    {
      const SiteScope scope(site);
      const Tensor wide = cast(grad, DType::f32);
      p.name = param.name();
      p.param = cast(param, DType::f32);
      p.grad = scale ? wide * scale : wide;
      p.decay = current_graph("append_optimizer").tensor(param.id()).decay;
    }
    const Tensor next = optimizer.update(p);  // outside the scope: its lines may be the user's
    const SiteScope scope(site);
    update(param, cast(next, param.dtype()));
  }
  return common.lr;
}

}  // namespace jerboa
