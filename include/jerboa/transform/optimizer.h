#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include <jerboa/transform/grad.h>
#include <jerboa/transform/schedule.h>

namespace jerboa {

/// A learning rate that the host hands in at every step, as the input of this name.
struct HostRate {
  std::string input = "lr";
};
/// A number, a schedule that runs in the graph, or a rate from the host.
using LearningRate = std::variant<Schedule, HostRate>;

/// What an optimizer sees of one parameter. It works on tensors of the graph, so its update is compiled like the rest.
class ParamUpdate {
 public:
  Tensor param, grad;
  Tensor lr;           ///< f32 scalar
  Tensor step;         ///< i32 scalar, counted from 1
  bool decay = false;  ///< whether weight decay applies to this parameter

  /// A state in the parameter's shape, kept between steps and saved in checkpoints as "NAME/PARAM".
  Tensor state(const std::string& name, Init init = Init::zeros());
  /// The next version of such a state.
  void set_state(const std::string& name, Operand value);

 private:
  std::vector<std::pair<std::string, Tensor>> states_;
};

/// Gives the new value of a parameter. This is all there is to an optimizer:
///
///   Optimizer lion{.lr = 1e-4, .update = [](ParamUpdate& p) -> Tensor {
///     Tensor m = p.state("lion_m");
///     Tensor blend = 0.9 * m + 0.1 * p.grad;
///     p.set_state("lion_m", 0.99 * m + 0.01 * p.grad);
///     return p.param - p.lr * where(blend > 0, 1, where(blend < 0, -1, zeros_like(blend)));
///   }};
using UpdateRule = std::function<Tensor(ParamUpdate&)>;

struct Optimizer {
  LearningRate lr = Schedule(1e-3);
  UpdateRule update;
  double clip_norm = 0;  ///< gradients are scaled down to this global norm; 0: off
};

/// Chooses by name which parameters weight decay applies to; by default those whose description says so: weights of
/// nn::Linear, nn::Embedding and convolutions, but no biases and norms.
using DecayFilter = std::function<bool(const std::string& name)>;

struct Adam {
  LearningRate lr = Schedule(1e-3);
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double clip_norm = 0;
  operator Optimizer() const;  // NOLINT: an Adam is an optimizer
};
/// Adam with decoupled weight decay.
struct AdamW {
  LearningRate lr = Schedule(1e-3);
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;
  DecayFilter decay = {};
  double clip_norm = 0;
  operator Optimizer() const;  // NOLINT
};
struct Sgd {
  LearningRate lr = Schedule(1e-2);
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  DecayFilter decay = {};
  double clip_norm = 0;
  operator Optimizer() const;  // NOLINT
};

/// Names of the states that every optimizer shares.
inline constexpr const char* step_state = "step";

/// Appends one optimizer step to the traced graph: clipping, the learning rate, the update of each parameter and of the
/// step counter. Returns the learning rate, for reports.
Tensor append_optimizer(const std::vector<ParamGrad>& grads, const Optimizer& optimizer);
inline Tensor append_adam(const std::vector<ParamGrad>& grads, const Adam& adam = {}) {
  return append_optimizer(grads, adam);
}

/// Square root of the sum of squares of all gradients.
Tensor global_norm(const std::vector<ParamGrad>& grads);

}  // namespace jerboa
