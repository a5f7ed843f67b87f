#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/ir/reserved_names.h>
#include <jerboa/ops/tensor.h>
#include <jerboa/transform/loss_scaling.h>
#include <jerboa/transform/optimizer.h>
#include <jerboa/transform/precision.h>

namespace jerboa {

/// An input that a graph is compiled for.
struct InputSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};
using InputSpecs = std::vector<InputSpec>;

/// The inputs of a graph while it is traced, by name.
class Inputs {
 public:
  /// Creates a tensor_input for each.
  explicit Inputs(const InputSpecs& specs, const CallSite& site = {});
  /// Throws UsageError that lists the names.
  Tensor operator[](const std::string& name) const;
  bool has(const std::string& name) const;
  /// All of them.
  std::map<std::string, Tensor, std::less<>> all() const;
  /// The inputs that have not been requested.
  std::vector<std::string> unused() const;
  /// The user's line that the graph is traced for.
  const CallSite& site() const { return site_; }

 private:
  struct Input {
    std::string name;
    Tensor tensor;
    mutable bool used = false;
  };
  std::vector<Input> inputs_;
  CallSite site_;
};

/// The result of a forward pass: one tensor, which is the output "output", or several by name:
///
///   return {{"features", features}, {"logits", logits}};
class Outputs {
 public:
  Outputs(Tensor output) : list_{{"output", output}} {}                                        // NOLINT
  Outputs(std::initializer_list<std::pair<std::string, Tensor>> outputs) : list_(outputs) {}   // NOLINT
  Outputs(std::vector<std::pair<std::string, Tensor>> outputs) : list_(std::move(outputs)) {}  // NOLINT
  const std::vector<std::pair<std::string, Tensor>>& list() const { return list_; }

 private:
  std::vector<std::pair<std::string, Tensor>> list_;
};

/// Computes the loss from the inputs.
using Loss = std::function<Tensor(const Inputs&)>;
/// Computes a tensor, or several, from the inputs.
using Forward = std::function<Outputs(const Inputs&)>;

/// The types a model computes in and, for mixed precision, how its loss is scaled.
struct PrecisionOptions {
  Precision precision = Precision::full;
  LossScaling loss_scaling = {};
};

/// The same forward pass, which throws UsageError that names the inputs that it does not use.
Forward using_all_inputs(const Forward& forward);

/// Graphs of a training step. Gradients are kept in storage under "grad/NAME", in f32. Throws UsageError that names the
/// inputs that the loss does not use. `site` is the user's line, for errors.
/// "loss" is the output; the optimizer's learning rate is the output "lr", the scale of the loss in mixed precision
/// "loss_scale".
Graph training_graph(const InputSpecs& inputs, const Loss& loss, const Optimizer& optimizer, const CallSite& site = {},
                     const PrecisionOptions& precision = {});
/// Inside a trace: keeps gradients where training_graph does, for Session::download_param_grads.
void keep_gradients(const std::vector<ParamGrad>& grads, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());
/// For gradient accumulation: adds the gradients of loss / parts to those in storage, without an update.
Graph accumulation_graph(const InputSpecs& inputs, const Loss& loss, int parts, const CallSite& site = {},
                         const PrecisionOptions& precision = {});
/// Updates the parameters from the gradients in storage and zeroes the gradients. `like` is an accumulation graph.
Graph apply_graph(const Graph& like, const Optimizer& optimizer, const CallSite& site = {},
                  const PrecisionOptions& precision = {});
/// A forward pass in evaluation mode.
Graph forward_graph(const InputSpecs& inputs, const Forward& forward, const CallSite& site = {},
                    Precision precision = Precision::full);

}  // namespace jerboa
