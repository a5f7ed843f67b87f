#include <fmt/format.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

namespace jerboa {

InputSpecs specs_of(const TensorMap& batch) {
  InputSpecs specs;
  for (const auto& [name, tensor] : batch) specs.push_back({name, to_shape(tensor.shape()), tensor.dtype()});
  return specs;
}

Inputs::Inputs(const InputSpecs& specs) {
  for (const InputSpec& spec : specs) tensors_.emplace_back(spec.name, tensor_input(spec.name, spec.shape, spec.dtype));
}

bool Inputs::has(const std::string& name) const {
  for (const auto& [known, tensor] : tensors_)
    if (known == name) return true;
  return false;
}

Tensor Inputs::operator[](const std::string& name) const {
  std::string known;
  for (const auto& [own, tensor] : tensors_) {
    if (own == name) return tensor;
    known += (known.empty() ? "" : ", ") + own;
  }
  throw UsageError(fmt::format("no input is named {}; there are {}", name, known.empty() ? "none" : known));
}

namespace {

Tensor gradient_slot(const Tensor& param) {
  return state_input(gradient_prefix + param.name(), param.shape(), param.dtype());
}

Graph trace_training(const std::function<void()>& body) {
  Graph graph;
  graph.training = true;
  trace_into(graph, body);
  return graph;
}

}  // namespace

Graph training_graph(const InputSpecs& inputs, const Forward& loss, const Optimizer& optimizer) {
  return trace_training([&] {
    const Tensor value = loss(Inputs(inputs));
    const auto grads = append_grad(value);
    for (const auto& [param, grad] : grads) update(gradient_slot(param), grad);
    const Tensor lr = append_optimizer(grads, optimizer);
    output("loss", value);
    output("lr", lr);
  });
}

Graph accumulation_graph(const InputSpecs& inputs, const Forward& loss, int parts) {
  return trace_training([&] {
    const Tensor value = loss(Inputs(inputs));
    for (const auto& [param, grad] : append_grad(value / parts)) {
      const Tensor slot = gradient_slot(param);
      update(slot, slot + grad);
    }
    output("loss", value);
  });
}

Graph apply_graph(const Graph& like, const Optimizer& optimizer) {
  return trace_training([&] {
    std::vector<ParamGrad> grads;
    for (const TensorInfo& info : like.tensors) {
      if (info.storage != Storage::param || !info.trainable || !info.tied_to.empty()) continue;
      const Tensor param =
          param_input(info.name, info.type.shape, {info.init, info.trainable, info.decay, info.type.dtype});
      const Tensor slot = gradient_slot(param);
      grads.push_back({param, slot});
      update(slot, zeros_like(slot));
    }
    output("lr", append_optimizer(grads, optimizer));
  });
}

Graph forward_graph(const InputSpecs& inputs, const Forward& forward) {
  return trace([&] { output("output", forward(Inputs(inputs))); });
}

Shape Module::output_shape(const std::string& output) const {
  std::string known;
  for (const NamedTensor& named : ir().outputs) {
    if (named.name == output) return ir().shape(named.tensor);
    known += (known.empty() ? "" : ", ") + named.name;
  }
  throw UsageError(fmt::format("the module has no output {}; there are {}", output, known));
}

Module compile(const Graph& graph, const CompileOptions& options) {
  return {create_session({{"run", graph}}, options), "run"};
}

Module compile(const Graph& graph, const Session& shared) {
  Session session = shared.sibling();
  session.add_entry("run", graph);
  return {std::move(session), "run"};
}

Session create_session(const std::vector<std::pair<std::string, Graph>>& entries, const CompileOptions& options) {
  Session session(options.device ? *options.device : Device::best(), {.seed = options.seed});
  for (const auto& [name, graph] : entries) session.add_entry(name, graph);
  return session;
}

}  // namespace jerboa
