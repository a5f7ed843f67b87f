#include "c_api/graph_builder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ops/trace_scope.h>

#include "ir/attr_json.h"

namespace jerboa::c_api {
namespace {

std::vector<Tensor> apply_op(GraphCall& call) {
  const auto op = op_from_name(call.function());
  if (!op) throw UsageError(fmt::format("there is no op or function {}", call.function()));
  if (info(*op).lowering == Lowering::Leaf)
    throw UsageError(fmt::format("{} is not made from operands: call input, parameter, state or constant", name(*op)));
  return apply(*op, call.operands(), detail::attrs_from(*op, call.attributes(), call.builder().symbols));
}

}  // namespace

GraphCall::GraphCall(GraphBuilder& builder, Fields& call)
    : builder_(builder),
      function_(call.text("function", "")),
      attributes_(call.value("options")),
      options_(attributes_, function_.empty() ? "a call" : function_) {
  const nlohmann::json& list = call.value("operands");
  if (!list.is_null() && !list.is_array()) throw UsageError(function_ + ": operands must be a list");
  for (const auto& item : list) operands_.push_back(read_operand(item));
}

Operand GraphCall::read_operand(const nlohmann::json& json) const {
  if (json.is_null()) return {};
  if (json.is_number_integer()) {
    const auto id = json.get<std::int64_t>();
    if (id < 0 || id >= static_cast<std::int64_t>(builder_.graph.tensors.size()))
      throw UsageError(fmt::format("{}: the graph has no tensor {}", function_, id));
    return Tensor(builder_.graph.identity(), static_cast<TensorId>(id));
  }
  if (json.is_object() && json.size() == 1 && json.contains("number"))
    if (const auto number = detail::number_from(json["number"])) return *number;
  throw UsageError(
      fmt::format("{}: an operand is the id of a tensor, a number or null, not {}", function_, json.dump()));
}

Operand GraphCall::operand(std::size_t index) const {
  if (index < operands_.size() && !operands_[index].is_absent()) return operands_[index];
  throw UsageError(fmt::format("{}: operand {} is missing", function_, index + 1));
}

Tensor GraphCall::optional(std::size_t index) const {
  return index < operands_.size() ? operands_[index].tensor() : Tensor();
}

Shape GraphCall::shape(const char* key) {
  return detail::shape_from(options_.value(key), builder_.symbols, fmt::format("{}: {}", function_, key));
}

DType GraphCall::dtype(DType otherwise) {
  const std::string text = options_.text("dtype", std::string(name(otherwise)));
  if (const auto dtype = dtype_from_name(text)) return *dtype;
  throw UsageError(fmt::format("{}: unknown type {}", function_, text));
}

std::vector<Tensor> GraphBuilder::call(std::string_view text) {
  Fields fields(text, "a call");
  const SiteScope site(fields.text("site", ""));
  const ModuleScope module(fields.text("module", ""));
  GraphCall call(*this, fields);
  fields.finish();
  const TraceScope scope(graph);
  const GraphFunction function = graph_function(call.function());
  if (function == nullptr) return apply_op(call);
  std::vector<Tensor> results = function(call);
  call.options().finish();
  return results;
}

}  // namespace jerboa::c_api
