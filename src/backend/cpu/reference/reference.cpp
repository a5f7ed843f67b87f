#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <utility>

#include <jerboa/backend/reference.h>
#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/transform/decompose.h>

#include "backend/cpu/reference/elementwise.h"
#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/finish.h"

namespace jerboa {
namespace reference {
namespace {

using Evaluation = void (*)(const Call&);

template <Op op, Lowering lowering>
constexpr Evaluation evaluation() {
  if constexpr (lowering == Lowering::Leaf || lowering == Lowering::Decompose)
    return nullptr;
  else if constexpr (HasScalar<op>)
    return [](const Call& call) { map(call, scalar<op>); };
  else
    return &evaluate<op>;
}

constexpr Evaluation evaluations[] = {
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) evaluation<Op::name, Lowering::lowering>(),
#include <jerboa/ir/ops.def>
#undef OP
};

void round_to_type(Value& value) {
  const auto each = [&](auto round) {
    for (double& element : value.data) element = round(static_cast<float>(element));
  };
  if (value.dtype == DType::f32) each([](float x) { return x; });
  if (value.dtype == DType::f16) each([](float x) { return f16_to_f32(f32_to_f16(x)); });
  if (value.dtype == DType::bf16) each([](float x) { return bf16_to_f32(f32_to_bf16(x)); });
}

// The values of one run over a graph without ops that decompose.
class Run {
 public:
  Run(const Graph& graph, const std::function<Value(const TensorInfo&)>& leaf, const SymbolValues& symbols,
      const std::function<void(Value&)>& finish)
      : graph_(graph), leaf_(leaf), symbols_(symbols), finish_(finish), values_(graph.tensors.size()) {}

  std::vector<Value> operator()(const std::vector<TensorId>& keep) {
    const std::vector<int> last_use = last_uses(keep);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(id)];
      const auto needed = [&](TensorId output) { return last_use[static_cast<std::size_t>(output)] >= 0; };
      if (std::none_of(node.outputs.begin(), node.outputs.end(), needed)) continue;
      run(node);
      for (const TensorId input : node.inputs)
        if (input != no_tensor && last_use[static_cast<std::size_t>(input)] == id) value(input) = {};
    }
    std::vector<Value> kept;
    for (const TensorId id : keep) kept.push_back(value(id));
    return kept;
  }

 private:
  Value& value(TensorId id) { return values_[static_cast<std::size_t>(id)]; }

  // The last node that reads each tensor; -1 if nothing to keep depends on it, and past the end for tensors to keep.
  std::vector<int> last_uses(const std::vector<TensorId>& keep) const {
    std::vector<int> last(graph_.tensors.size(), -1);
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    for (const TensorId id : keep) last[static_cast<std::size_t>(id)] = count;
    for (NodeId id = count; id-- > 0;) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(id)];
      const auto needed = [&](TensorId output) { return last[static_cast<std::size_t>(output)] >= 0; };
      if (std::none_of(node.outputs.begin(), node.outputs.end(), needed)) continue;
      for (const TensorId input : node.inputs)
        if (input != no_tensor)
          last[static_cast<std::size_t>(input)] = std::max(last[static_cast<std::size_t>(input)], id);
    }
    return last;
  }

  void run(const Node& node) {
    std::vector<Value> outputs;
    for (const TensorId id : node.outputs) {
      Value fresh{graph_.type(id).dtype, evaluate(graph_.shape(id), symbols_), {}};
      fresh.data.resize(static_cast<std::size_t>(element_count(fresh.shape)), 0);
      outputs.push_back(std::move(fresh));
    }
    if (const Evaluation evaluation = evaluations[static_cast<std::size_t>(node.op)]) {
      std::vector<const Value*> inputs;
      for (const TensorId id : node.inputs) inputs.push_back(id == no_tensor ? nullptr : &value(id));
      evaluation(Call{graph_, node, symbols_, std::move(inputs), outputs});
    } else {
      read_leaf(node, outputs[0]);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      finish_(outputs[i]);
      value(node.outputs[i]) = std::move(outputs[i]);
    }
  }

  void read_leaf(const Node& node, Value& out) {
    if (node.op == Op::const_scalar) {
      out.data[0] = node.as<ConstScalarAttrs>().value;
      return;
    }
    const TensorInfo& info = graph_.tensor(node.outputs[0]);
    Value given = node.op == Op::constant
                      ? to_value(graph_.constants[static_cast<std::size_t>(node.as<ConstantAttrs>().blob)])
                      : leaf_(info);
    if (given.dtype != out.dtype || given.shape != out.shape || given.data.size() != out.data.size())
      throw UsageError(fmt::format("{} is {}{}, but was given {}{}", info.name, name(out.dtype), to_string(out.shape),
                                   name(given.dtype), to_string(given.shape)));
    out = std::move(given);
  }

  const Graph& graph_;
  const std::function<Value(const TensorInfo&)>& leaf_;
  const SymbolValues& symbols_;
  const std::function<void(Value&)>& finish_;
  std::vector<Value> values_;
};

}  // namespace
}  // namespace reference

Value to_value(const HostTensor& tensor) {
  Value value{tensor.dtype(), tensor.shape(), {}};
  const std::int64_t size = tensor.size();
  value.data.reserve(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) value.data.push_back(tensor.number(i));
  return value;
}

HostTensor to_host(const Value& value) {
  HostTensor tensor(value.dtype, value.shape);
  const std::int64_t size = tensor.size();
  for (std::int64_t i = 0; i < size; ++i) tensor.set_number(i, value.data[static_cast<std::size_t>(i)]);
  return tensor;
}

namespace {
std::atomic<std::int64_t> evaluations = 0;
}  // namespace

std::int64_t reference_evaluations() { return evaluations; }

std::vector<Value> reference::evaluate_with(const Graph& graph, const std::vector<TensorId>& keep,
                                            const std::function<Value(const TensorInfo&)>& leaf,
                                            const SymbolValues& symbols, const std::function<void(Value&)>& finish) {
  ++jerboa::evaluations;
  std::vector<TensorId> moved;
  const Graph simple = decompose(graph, &moved);
  std::vector<TensorId> wanted;
  for (const TensorId id : keep) wanted.push_back(moved[static_cast<std::size_t>(id)]);
  return Run(simple, leaf, symbols, finish)(wanted);
}

std::vector<Value> evaluate_reference(const Graph& graph, const std::vector<TensorId>& keep,
                                      const std::function<Value(const TensorInfo&)>& leaf, const SymbolValues& symbols,
                                      ReferencePrecision precision) {
  const auto keep_as_it_is = [](Value&) {};
  return precision == ReferencePrecision::f32
             ? reference::evaluate_with(graph, keep, leaf, symbols, reference::round_to_type)
             : reference::evaluate_with(graph, keep, leaf, symbols, keep_as_it_is);
}

}  // namespace jerboa
