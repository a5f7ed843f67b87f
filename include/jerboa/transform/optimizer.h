#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <jerboa/ir/reserved_names.h>
#include <jerboa/transform/grad.h>
#include <jerboa/transform/schedule.h>

namespace jerboa {

/// A learning rate that the host passes in at every step, as the input of this name.
struct HostRate {
  std::string input = "lr";
};
/// A number, a schedule that runs in the graph, or a rate from the host.
using LearningRate = std::variant<Schedule, HostRate>;

/// One parameter as an optimizer sees it. It works on tensors of the graph, so its update is compiled like the rest.
/// Everything is f32, whatever the parameter's type: the new value is rounded to that type once, at the end.
class ParamUpdate {
 public:
  std::string name;       ///< of the parameter
  Tensor param, grad;     ///< f32
  Tensor lr;              ///< f32 scalar
  Tensor step;            ///< i32 scalar, counted from 1
  bool decay = false;     ///< whether weight decay applies to this parameter
  std::string optimizer;  ///< the optimizer's name, which prefixes its states
  std::string site;       ///< the user's line that made the optimizer, for errors

  /// An f32 state in the parameter's shape, kept between steps and saved in checkpoints as "STATE/PARAM", or
  /// "OPTIMIZER/STATE/PARAM" if the optimizer has a name.
  Tensor state(const std::string& state, Init init = Init::zeros(), const char* file = __builtin_FILE(),
               int line = __builtin_LINE());
  /// The next version of such a state.
  void set_state(const std::string& state, Operand value);

 private:
  std::vector<std::pair<std::string, Tensor>> states_;
};

/// Returns the new value of a parameter. This is all that defines an optimizer:
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
  /// Prefixes its step counter and states. At most one of the optimizers over one session may be unnamed. "grad" and
  /// "f16" are reserved.
  std::string name = {};
};

/// Chooses by name which parameters weight decay applies to; by default the weights of nn::Linear, nn::Embedding and
/// convolutions, but not biases and norms.
using DecayFilter = std::function<bool(const std::string& name)>;

struct Adam {
  LearningRate lr = Schedule(1e-3);
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< 0 ≤ beta < 1; eps ≥ 0
  double clip_norm = 0;
  std::string name = {};
  operator Optimizer() const;  // NOLINT: an Adam is an optimizer
};
/// Adam with decoupled weight decay.
struct AdamW {
  LearningRate lr = Schedule(1e-3);
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< as in Adam
  double weight_decay = 0.01;                     ///< ≥ 0
  DecayFilter decay = {};
  double clip_norm = 0;
  std::string name = {};
  operator Optimizer() const;  // NOLINT
};
struct Sgd {
  LearningRate lr = Schedule(1e-2);
  double momentum = 0;  ///< 0 ≤ momentum < 1
  bool nesterov = false;
  double weight_decay = 0;  ///< ≥ 0
  DecayFilter decay = {};
  double clip_norm = 0;
  std::string name = {};
  operator Optimizer() const;  // NOLINT
};

/// The state that counts the steps of the optimizer of this name: "step", or "NAME/step".
std::string step_state_of(const std::string& optimizer);
/// Whether a state of this name counts an optimizer's steps.
bool is_step_counter(std::string_view state);
/// The parameter that an optimizer's state of this name belongs to, among those that `is_param` accepts.
std::optional<std::string> state_owner(const std::string& state,
                                       const std::function<bool(const std::string& name)>& is_param);

/// Appends one optimizer step to the traced graph: clipping, the learning rate, the update of each parameter and of the
/// step counter. Several optimizers in one graph must update disjoint parameters under distinct names. Returns the
/// learning rate, for reporting. The gradients are first multiplied by `factor`, an f32 scalar, if it is given: they
/// may be those of a scaled loss.
Tensor append_optimizer(const std::vector<ParamGrad>& grads, const Optimizer& optimizer,
                        const char* file = __builtin_FILE(), int line = __builtin_LINE(), const Tensor& factor = {});
inline Tensor append_adam(const std::vector<ParamGrad>& grads, const Adam& adam = {},
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return append_optimizer(grads, adam, file, line);
}

/// Square root of the sum of squares of all gradients.
Tensor global_norm(const std::vector<ParamGrad>& grads, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE());

}  // namespace jerboa
