#include "ops/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <random>

#include <jerboa/transform/decompose.h>
#include <jerboa/transform/grad.h>

namespace jerboa::test {
namespace {

constexpr double step = 1e-5;
constexpr double tolerance = 1e-6;
constexpr std::size_t single_elements = 8;
constexpr int random_directions = 2;

// Single elements, all of them or some of many, and directions that move every element at once.
std::vector<std::vector<double>> directions(std::size_t size) {
  std::mt19937 engine(static_cast<unsigned>(size));
  std::vector<std::vector<double>> list;
  if (size == 0) return list;
  for (std::size_t i = 0; i < std::min(size, single_elements); ++i) {
    list.emplace_back(size, 0.0);
    list.back()[size <= single_elements ? i : engine() % size] = 1;
  }
  for (int i = 0; i < random_directions; ++i) {
    list.emplace_back(size, 0.0);
    for (double& element : list.back()) element = engine() % 2 == 0 ? 1 : -1;
  }
  return list;
}

Tensor weighted_sum(const std::vector<Tensor>& tensors, const std::string& prefix, std::map<std::string, Value>& inputs,
                    std::vector<Tensor>* weights = nullptr) {
  Tensor total;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor weight = weight_input(fmt::format("{}{}", prefix, i), tensors[i], inputs);
    if (weights != nullptr) weights->push_back(weight);
    const Tensor part = sum(weight * tensors[i]);
    total = total ? total + part : part;
  }
  return total;
}

std::vector<Tensor> checked_outputs(const Case& sample, const Instance& instance) {
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < instance.outputs.size(); ++i) {
    const bool listed =
        sample.outputs.empty() || std::find(sample.outputs.begin(), sample.outputs.end(), i) != sample.outputs.end();
    if (listed && is_float(instance.outputs[i].dtype())) outputs.push_back(instance.outputs[i]);
  }
  return outputs;
}

// Traces the case and runs `body` on it; empty if there is nothing to differentiate.
template <class Body>
std::optional<Differentiated> differentiate(Op op, const Case& sample, DType floats, Body body) {
  Differentiated it;
  bool differentiable = false;
  it.graph = trace([&] {
    const Instance instance = build(op, sample, it.inputs, floats);
    const auto outputs = checked_outputs(sample, instance);
    differentiable = !instance.floats.empty() && !outputs.empty();
    it.outputs = ids(outputs);
    if (differentiable) body(it, instance, outputs);
  });
  if (!differentiable) return std::nullopt;
  return it;
}

}  // namespace

std::vector<TensorId> ids(const std::vector<Tensor>& tensors) {
  std::vector<TensorId> list;
  for (const Tensor& tensor : tensors) list.push_back(tensor.id());
  return list;
}

std::vector<Mismatch> check_gradient(const Differentiated& it) {
  std::vector<TensorId> moved;
  const Graph graph = decompose(it.graph, &moved);
  const auto at = [&](TensorId id) { return moved[static_cast<std::size_t>(id)]; };
  std::vector<TensorId> grads;
  for (const TensorId id : it.grads) grads.push_back(at(id));
  const auto analytic = run(graph, grads, it.inputs);
  const auto loss_with = [&](const std::string& name, const std::vector<double>& direction, double distance) {
    auto inputs = it.inputs;
    auto& data = inputs.at(name).data;
    for (std::size_t i = 0; i < data.size(); ++i) data[i] += distance * direction[i];
    return run(graph, {at(it.loss)}, inputs).front().data.front();
  };
  std::vector<Mismatch> mismatches;
  for (std::size_t i = 0; i < it.wrt.size(); ++i) {
    const std::string& name = it.graph.tensor(it.wrt[i]).name;
    if (analytic[i].shape != it.inputs.at(name).shape) {
      mismatches.push_back({name, "the gradient has another shape"});
      continue;
    }
    for (const auto& direction : directions(analytic[i].data.size())) {
      const double numeric = (loss_with(name, direction, step) - loss_with(name, direction, -step)) / (2 * step);
      double expected = 0, size = 1;
      for (std::size_t e = 0; e < direction.size(); ++e) {
        expected += analytic[i].data[e] * direction[e];
        size += std::abs(analytic[i].data[e] * direction[e]);
      }
      if (std::abs(numeric - expected) <= tolerance * size) continue;
      mismatches.push_back(
          {name, fmt::format("the gradient for {} is {:.9g}, by differences {:.9g}", name, expected, numeric)});
      break;
    }
  }
  return mismatches;
}

std::optional<Differentiated> first_order(Op op, const Case& sample, DType floats) {
  return differentiate(op, sample, floats,
                       [](Differentiated& it, const Instance& instance, const std::vector<Tensor>& outputs) {
                         const Tensor loss = weighted_sum(outputs, "w", it.inputs);
                         it.loss = loss.id();
                         it.wrt = ids(instance.floats);
                         it.grads = ids(grad(loss, instance.floats));
                       });
}

std::optional<Differentiated> second_order(Op op, const Case& sample) {
  return differentiate(op, sample, DType::f32,
                       [](Differentiated& it, const Instance& instance, const std::vector<Tensor>& outputs) {
                         std::vector<Tensor> wrt = instance.floats;
                         const Tensor first = weighted_sum(outputs, "w", it.inputs, &wrt);
                         const Tensor loss = weighted_sum(grad(first, instance.floats), "v", it.inputs);
                         it.loss = loss.id();
                         it.wrt = ids(wrt);
                         it.grads = ids(grad(loss, wrt));
                       });
}

}  // namespace jerboa::test
