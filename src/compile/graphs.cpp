#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/compile/graphs.h>
#include <jerboa/compile/training_step.h>
#include <jerboa/ops/ops.h>
#include <jerboa/ops/reserved_state.h>
#include <jerboa/transform/half_copies.h>

namespace jerboa {
namespace {

std::string in_parentheses(const CallSite& site) { return site.line == 0 ? "" : " (" + site.str() + ")"; }

}  // namespace

Inputs::Inputs(const InputSpecs& specs, const CallSite& site) : site_(site) {
  const SiteScope scope(site);
  for (const InputSpec& spec : specs) inputs_.push_back({spec.name, tensor_input(spec.name, spec.shape, spec.dtype)});
}

bool Inputs::has(const std::string& name) const {
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& input) { return input.name == name; });
}

std::map<std::string, Tensor, std::less<>> Inputs::all() const {
  std::map<std::string, Tensor, std::less<>> tensors;
  for (const Input& input : inputs_) {
    input.used = true;
    tensors.emplace(input.name, input.tensor);
  }
  return tensors;
}

Tensor Inputs::operator[](const std::string& name) const {
  std::vector<std::string> known;
  for (const Input& input : inputs_) {
    if (input.name == name) {
      input.used = true;
      return input.tensor;
    }
    known.push_back(input.name);
  }
  throw UsageError(fmt::format("no input is named {}; available: {}{}", name,
                               known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                               in_parentheses(site_)));
}

std::vector<std::string> Inputs::unused() const {
  std::vector<std::string> names;
  for (const Input& input : inputs_)
    if (!input.used) names.push_back(input.name);
  return names;
}

namespace {

// f32 regardless of the parameter's type, so that small gradients are not lost in long sums.
Tensor gradient_slot(const std::string& param, const Shape& shape) {
  return detail::reserved_state(gradient_prefix + param, shape, DType::f32);
}

Graph trace_training(const std::function<void()>& body) {
  Graph graph;
  graph.training = true;
  trace_into(graph, body);
  return graph;
}

// Throws if there are unused inputs; `what` is what computes from them, and `whole` how it calls them.
void check_all_used(const Inputs& inputs, const char* what, const char* whole) {
  if (const auto unused = inputs.unused(); !unused.empty())
    throw UsageError(
        fmt::format("{} does not use {} of {}; leave out what is not needed, or check for a misspelt name{}", what,
                    fmt::join(unused, ", "), whole, in_parentheses(inputs.site())));
}

Tensor trace_loss(const InputSpecs& specs, const Loss& loss, const CallSite& site) {
  const Inputs inputs(specs, site);
  const Tensor value = loss(inputs);
  if (value) check_all_used(inputs, "the loss", "the batch");
  return value;
}

}  // namespace

namespace {

// A graph that computes the loss, its output.
Graph loss_graph(const InputSpecs& inputs, const Loss& loss, const CallSite& site) {
  return trace_training([&] {
    const Tensor value = trace_loss(inputs, loss, site);
    if (!value) throw GraphError("the loss is empty: the function that computes it returned no tensor");
    output("loss", Operand(value, site.file, site.line));
  });
}

Tensor loss_of(const Graph& graph) {
  const auto is_loss = [](const NamedTensor& output) { return output.name == "loss"; };
  const auto found = std::find_if(graph.outputs.begin(), graph.outputs.end(), is_loss);
  if (found == graph.outputs.end()) throw GraphError("a training step needs the output loss");
  return {graph.identity(), found->tensor};
}

// Gradients of the loss divided by the number of parts of a batch. In mixed precision they are those of the scaled
// loss, and `factor` undoes the scaling; updates multiply by it, so that it needs no separate kernel.
struct Gradients {
  std::vector<ParamGrad> list;
  Tensor factor;  // absent: 1

  Tensor unscaled(const Tensor& grad) const {
    const Tensor wide = cast(grad, DType::f32);
    return factor ? wide * factor : wide;
  }
};

Gradients gradients(const Tensor& loss, int parts, const CallSite& site, const PrecisionOptions& precision) {
  const auto differentiate = [&](const Tensor& value) { return append_grad(Operand(value, site.file, site.line)); };
  const SiteScope scope(site);
  const Tensor part = parts == 1 ? loss : loss / parts;
  if (precision.precision == Precision::full) return {differentiate(part), {}};
  const Tensor scale = loss_scale(precision.loss_scaling);
  return {differentiate(part * cast(scale, part.dtype())), 1 / scale};
}

// An optimizer step, which in mixed precision is skipped if a gradient is not finite. Returns the learning rate.
Tensor optimize(const Gradients& grads, const Optimizer& optimizer, const CallSite& site,
                const PrecisionOptions& precision) {
  const std::size_t first = current_graph("optimize").updates.size();
  const Tensor lr = append_optimizer(grads.list, optimizer, site.file, site.line, grads.factor);
  if (precision.precision == Precision::full) return lr;
  const SiteScope scope(site);
  const Tensor finite = are_finite(grads.list);
  update_only_if(finite, first);
  output("loss_scale", loss_scale(precision.loss_scaling));
  update_loss_scale(finite, precision.loss_scaling);
  return lr;
}

}  // namespace

void keep_gradients(const std::vector<ParamGrad>& grads, const char* file, int line) {
  const SiteScope scope(CallSite{file, line});
  for (const auto& [param, grad] : grads) {
    const Tensor slot = gradient_slot(param.name(), param.shape());
    update(slot, cast(grad, DType::f32));
  }
}

Graph training_graph(const InputSpecs& inputs, const Loss& loss, const Optimizer& optimizer, const CallSite& site,
                     const PrecisionOptions& precision) {
  return training_graph(loss_graph(inputs, loss, site), optimizer, site, precision);
}

Graph training_graph(const Graph& traced, const Optimizer& optimizer, const CallSite& site,
                     const PrecisionOptions& precision) {
  Graph graph = with_precision(traced, precision.precision);
  const Tensor value = loss_of(graph);
  trace_into(graph, [&] {
    const auto grads = gradients(value, 1, site, precision);
    {
      const SiteScope scope(site);
      std::vector<ParamGrad> kept;
      for (const auto& [param, grad] : grads.list) kept.push_back({param, grads.unscaled(grad)});
      keep_gradients(kept);
    }
    const Tensor lr = optimize(grads, optimizer, site, precision);
    const SiteScope scope(site);
    output("lr", lr);
  });
  return precision.precision == Precision::full ? graph : with_half_copies(graph);
}

Graph accumulation_graph(const InputSpecs& inputs, const Loss& loss, int parts, const CallSite& site,
                         const PrecisionOptions& precision) {
  Graph graph = with_precision(loss_graph(inputs, loss, site), precision.precision);
  const Tensor value = loss_of(graph);
  trace_into(graph, [&] {
    const auto grads = gradients(value, parts, site, precision);
    const SiteScope scope(site);
    for (const auto& [param, grad] : grads.list) {
      const Tensor slot = gradient_slot(param.name(), param.shape());
      update(slot, slot + grads.unscaled(grad));
    }
  });
  return precision.precision == Precision::full ? graph : with_half_copies(graph);
}

Graph apply_graph(const Graph& like, const Optimizer& optimizer, const CallSite& site,
                  const PrecisionOptions& precision) {
  return trace_training([&] {
    Gradients grads;
    for (const TensorInfo& info : like.tensors) {
      if (info.storage != Storage::param || !info.trainable || !info.tied_to.empty()) continue;
      const SiteScope scope(site);
      const Tensor param =
          param_input(info.name, info.type.shape, {info.init, info.trainable, info.decay, info.type.dtype});
      const Tensor slot = gradient_slot(info.name, info.type.shape);
      grads.list.push_back({param, slot});
      update(slot, zeros_like(slot));
    }
    const Tensor lr = optimize(grads, optimizer, site, precision);
    output("lr", Operand(lr, site.file, site.line));
    update_half_copies(like);
  });
}

Graph forward_graph(const InputSpecs& inputs, const Forward& forward, const CallSite& site, Precision precision) {
  return with_precision(
      trace([&] {
        const Outputs outputs = forward(Inputs(inputs, site));
        const SiteScope scope(site);
        if (outputs.list().empty())
          throw UsageError(fmt::format("the forward pass returns no outputs{}", in_parentheses(site)));
        for (const auto& [name, tensor] : outputs.list()) output(name, tensor);
      }),
      precision);
}

Forward using_all_inputs(const Forward& forward) {
  return [forward](const Inputs& inputs) {
    Outputs outputs = forward(inputs);
    check_all_used(inputs, "the forward pass", "its inputs");
    return outputs;
  };
}

}  // namespace jerboa
