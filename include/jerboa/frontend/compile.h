#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/frontend/model.h>
#include <jerboa/runtime/session.h>
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
/// The specs of existing data.
InputSpecs specs_of(const TensorMap& batch);

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

struct CompileOptions {
  std::optional<Device> device = {};  ///< by default Device::best()
  std::uint64_t seed = 0;
  PrecisionOptions precision = {};
};

/// Graphs of a training step. Gradients are kept in storage under "grad/NAME", in f32. Throws UsageError that names the
/// inputs that the loss does not use. `site` is the user's line, for errors.
/// "loss" is the output; the optimizer's learning rate is the output "lr", the scale of the loss in mixed precision
/// "loss_scale".
Graph training_graph(const InputSpecs& inputs, const Loss& loss, const Optimizer& optimizer, const CallSite& site = {},
                     const PrecisionOptions& precision = {});
/// For gradient accumulation: adds the gradients of loss / parts to those in storage, without an update.
Graph accumulation_graph(const InputSpecs& inputs, const Loss& loss, int parts, const CallSite& site = {},
                         const PrecisionOptions& precision = {});
/// Updates the parameters from the gradients in storage and zeroes the gradients. `like` is an accumulation graph.
Graph apply_graph(const Graph& like, const Optimizer& optimizer, const CallSite& site = {},
                  const PrecisionOptions& precision = {});
/// A forward pass in evaluation mode.
Graph forward_graph(const InputSpecs& inputs, const Forward& forward, const CallSite& site = {},
                    Precision precision = Precision::full);

/// A graph compiled for a device, with its storage.
class Module {
 public:
  Module(Session session, std::string entry) : session_(std::move(session)), entry_(std::move(entry)) {}

  const Graph& ir() const { return session_.graph(entry_); }
  int kernel_count() const { return session_.kernel_count(entry_); }
  /// The shape of an output; throws UsageError that lists the outputs.
  Shape output_shape(const std::string& output = "output") const;
  Result run(const TensorMap& inputs, const RunOptions& options = {}) { return session_.run(entry_, inputs, options); }
  Result step(const TensorMap& inputs, const RunOptions& options = {}) { return run(inputs, options); }
  Session& session() { return session_; }

 private:
  Session session_;
  std::string entry_;
};

/// Compiles one graph as a module.
Module compile(const Graph& graph, const CompileOptions& options = {});
/// The same over existing storage: parameters are shared, not copied.
Module compile(const Graph& graph, const Session& shared);

/// A training step of a model: loss(model, inputs) must be a scalar.
template <class Model, class LossFunction>
Module compile_module(Model model, LossFunction loss, const InputSpecs& inputs, const Optimizer& optimizer = Adam{},
                      const CompileOptions& options = {}, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  assign_paths(model);
  const Loss bound_loss = [&](const Inputs& in) { return loss(std::as_const(model), in); };
  return compile(training_graph(inputs, bound_loss, optimizer, {file, line}, options.precision), options);
}

/// A forward pass of a model with its own storage. The function returns a tensor or several Outputs.
template <class Model, class Function>
Module compile_forward(Model model, Function function, const InputSpecs& inputs, const CompileOptions& options = {},
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  assign_paths(model);
  const Forward bound_function = [&](const Inputs& in) { return function(std::as_const(model), in); };
  return compile(forward_graph(inputs, bound_function, {file, line}, options.precision.precision), options);
}
/// A sibling of a module or session that shares its parameters.
template <class Model, class Function>
Module compile_forward(Model model, Function function, const InputSpecs& inputs, const Session& shared,
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  assign_paths(model);
  const Forward bound_function = [&](const Inputs& in) { return function(std::as_const(model), in); };
  return compile(forward_graph(inputs, bound_function, {file, line}), shared);
}

/// A session with one entry per graph.
Session create_session(const std::vector<std::pair<std::string, Graph>>& entries, const CompileOptions& options = {});

}  // namespace jerboa
