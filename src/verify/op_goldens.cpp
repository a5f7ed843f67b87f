#include "verify/op_goldens.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include <jerboa/backend/reference.h>
#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/grad.h>

#include "base/parse_json.h"

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;

DType natural_type(const TensorView& view) {
  switch (view.type) {
    case StoredType::F64:
    case StoredType::F32:
    case StoredType::F16:
    case StoredType::BF16: return DType::f32;
    case StoredType::BOOL: return DType::boolean;
    case StoredType::U32: return DType::u32;
    default: return DType::i32;
  }
}

DType type_for(const OperandInfo& slot, const TensorView& view) {
  if (slot.kind == OperandInfo::Kind::boolean) return DType::boolean;
  if (slot.kind == OperandInfo::Kind::integer && natural_type(view) != DType::u32) return DType::i32;
  return natural_type(view);
}

HostTensor to_host(const TensorView& view, DType dtype) {
  HostTensor tensor(dtype, view.shape);
  const auto values = to_f64(view);
  for (std::size_t i = 0; i < values.size(); ++i) tensor.set_number(static_cast<std::int64_t>(i), values[i]);
  return tensor;
}

std::vector<double> numbers(const HostTensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor.number(i));
  return values;
}

class Case {
 public:
  Case(const SafeTensors& file, std::string name, const Json& description) : file_(file), name_(std::move(name)) {
    const auto op_name = description.at("op").get<std::string>();
    const auto op = op_from_name(op_name);
    if (!op) throw UsageError(fmt::format("unknown op {}", in_quotes(op_name)));
    op_ = *op;
    attrs_ = attrs_from_json(op_, description.value("attrs", Json::object()).dump());
  }

  void run(const EvaluateGraph& evaluate, const Tolerance& tolerance) {
    const Graph graph = trace([&] { build(); });
    const auto values = evaluate(graph, keep_, inputs_);
    for (std::size_t i = 0; i < keep_.size(); ++i) check(wanted_[i], values.at(i), tolerance);
    refuse_unused_tensors();
  }

 private:
  bool has(const std::string& part) const { return file_.contains(name_ + "/" + part); }
  const TensorView& view(const std::string& part) const {
    used_.insert(part);
    return file_.view(name_ + "/" + part);
  }

  // An unused tensor would look like a check without being one.
  void refuse_unused_tensors() const {
    const std::string prefix = name_ + "/";
    for (const std::string& name : file_.names())
      if (name.starts_with(prefix) && !used_.contains(name.substr(prefix.size())))
        throw UsageError(fmt::format("{} is in the file, but the case does not use it", name.substr(prefix.size())));
  }

  // The case's tensors "in0" … or "int0" …, for the op's operands of that kind.
  std::vector<std::string> parts(const std::string& prefix) const {
    std::vector<std::string> names;
    while (has(prefix + std::to_string(names.size()))) names.push_back(prefix + std::to_string(names.size()));
    return names;
  }

  Tensor input(const std::string& part, const OperandInfo& slot) {
    const DType dtype = type_for(slot, view(part));
    inputs_.emplace(part, to_host(view(part), dtype));
    return tensor_input(part, to_shape(view(part).shape), dtype);
  }

  void build() {
    const auto floats = parts("in"), ints = parts("int");
    std::size_t next_float = 0, next_int = 0;
    std::vector<Operand> operands;
    std::vector<Tensor> sources;  // of in0, in1, …
    for (const OperandInfo& slot : info(op_).operands) {
      const bool any = slot.kind == OperandInfo::Kind::any;
      const auto& names = any ? floats : ints;
      std::size_t& next = any ? next_float : next_int;
      do {
        if (next == names.size()) {
          if (!slot.variadic) operands.emplace_back();
          break;
        }
        const Tensor tensor = input(names[next++], slot);
        operands.emplace_back(tensor, "", 0);  // a golden has no source line
        if (any) sources.push_back(tensor);
      } while (slot.variadic);
    }
    if (next_float < floats.size() || next_int < ints.size())
      throw UsageError(
          fmt::format("{} inputs and {} integer inputs are more than {} takes", floats.size(), ints.size(), name(op_)));
    const auto outputs = apply(op_, operands, attrs_);
    keep(outputs.front(), "out");
    for (std::size_t i = 1; i < outputs.size(); ++i) {
      const std::string part = fmt::format("out{}", i);
      if (!has(part))
        throw UsageError(fmt::format("{} has {} results, but {} is missing", name(op_), outputs.size(), part));
      keep(outputs[i], part);
    }
    if (has("cotangent"))
      differentiate(outputs.front(), sources);
    else if (has_gradient(outputs.front(), sources))
      throw UsageError(fmt::format("{} has a gradient, but cotangent is missing", name(op_)));
  }

  bool has_gradient(const Tensor& out, const std::vector<Tensor>& sources) const {
    const Gradient rule = info(op_).gradient;
    return (rule == Gradient::Rule || rule == Gradient::Decompose) && is_float(out.dtype()) &&
           std::any_of(sources.begin(), sources.end(), [](const Tensor& source) { return is_float(source.dtype()); });
  }

  void differentiate(const Tensor& out, const std::vector<Tensor>& sources) {
    const Tensor weight = input("cotangent", {});
    const auto weights = to_f64(view("cotangent"));
    if (std::all_of(weights.begin(), weights.end(), [](double value) { return value == 0; }))
      throw UsageError("the cotangent is zero, so any gradient that is a multiple of it would pass");
    const auto grads = grad(sum(weight * out), sources);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      const std::string part = fmt::format("grad{}", i);
      if (!has(part)) throw UsageError(fmt::format("there is a cotangent, but {} is missing", part));
      keep(grads[i], part);
    }
  }

  void keep(const Tensor& tensor, const std::string& part) {
    if (tensor.shape() != to_shape(view(part).shape))
      throw ShapeError(
          fmt::format("{} is {} instead of {}", part, to_string(tensor.shape()), to_string(view(part).shape)));
    if (element_count(view(part).shape) == 0)
      throw UsageError(fmt::format("{} has no elements, so anything would pass", part));
    keep_.push_back(tensor.id());
    wanted_.push_back(part);
  }

  void check(const std::string& part, const HostTensor& computed, const Tolerance& tolerance) const {
    const Tolerance exact{0, 0, 0};
    const auto golden = to_f64(view(part)), values = numbers(computed);
    if (const auto wrong = difference(values, golden, is_float(computed.dtype()) ? tolerance : exact))
      throw UsageError(fmt::format("{}: {}", part, *wrong));
  }

  const SafeTensors& file_;
  std::string name_;
  Op op_ = Op::add;
  Attrs attrs_;
  std::map<std::string, HostTensor> inputs_;
  std::vector<TensorId> keep_;
  std::vector<std::string> wanted_;
  mutable std::set<std::string> used_;
};

}  // namespace

std::vector<HostTensor> evaluate_on_reference(const Graph& graph, const std::vector<TensorId>& keep,
                                              const std::map<std::string, HostTensor>& inputs) {
  const auto leaf = [&](const TensorInfo& tensor) { return to_value(inputs.at(tensor.name)); };
  std::vector<HostTensor> results;
  for (const Value& value : evaluate_reference(graph, keep, leaf)) results.push_back(to_host(value));
  return results;
}

std::vector<CaseReport> verify_op_goldens(const SafeTensors& file, const EvaluateGraph& evaluate,
                                          const Tolerance& tolerance) {
  const auto text = file.metadata().find("cases");
  const Json cases = text == file.metadata().end() ? Json() : Json::parse(text->second, nullptr, false);
  if (!cases.is_object())
    throw FileError(fmt::format("{}: its metadata has no JSON object \"cases\"", file.path().string()));
  std::vector<CaseReport> reports;
  for (const auto& item : cases.items()) {
    CaseReport report{item.key(), true, {}};
    try {
      Case(file, item.key(), item.value()).run(evaluate, tolerance);
    } catch (const std::exception& error) {
      report = {item.key(), false, error.what()};
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace jerboa
