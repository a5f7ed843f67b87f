#pragma once

#include <optional>
#include <string>
#include <vector>

#include <jerboa/compile/graphs.h>
#include <jerboa/frontend/model.h>
#include <jerboa/runtime/session.h>

namespace jerboa {

/// The specs of existing data.
InputSpecs specs_of(const TensorMap& batch);

struct CompileOptions {
  std::optional<Device> device = {};  ///< by default Device::best()
  std::uint64_t seed = 0;
  PrecisionOptions precision = {};
};

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

/// A forward pass of a model with its own storage. The function returns a tensor or several Outputs, and must use every
/// input.
template <class Model, class Function>
Module compile_forward(Model model, Function function, const InputSpecs& inputs, const CompileOptions& options = {},
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  assign_paths(model);
  const Forward bound_function = [&](const Inputs& in) { return function(std::as_const(model), in); };
  return compile(forward_graph(inputs, using_all_inputs(bound_function), {file, line}, options.precision.precision),
                 options);
}
/// A sibling of a module or session that shares its parameters.
template <class Model, class Function>
Module compile_forward(Model model, Function function, const InputSpecs& inputs, const Session& shared,
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  assign_paths(model);
  const Forward bound_function = [&](const Inputs& in) { return function(std::as_const(model), in); };
  return compile(forward_graph(inputs, using_all_inputs(bound_function), {file, line}), shared);
}

/// A session with one entry per graph.
Session create_session(const std::vector<std::pair<std::string, Graph>>& entries, const CompileOptions& options = {});

}  // namespace jerboa
