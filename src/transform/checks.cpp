#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include <jerboa/base/error.h>
#include <jerboa/ir/shapes.h>
#include <jerboa/transform/checks.h>

#include "transform/rewrite.h"

namespace jerboa {

Checks checks_from_environment() {
  Checks checks;
  const char* text = std::getenv("JERBOA_CHECK");
  for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    if (name == "finite")
      checks.finite = true;
    else if (name == "indices")
      checks.indices = true;
    else if (!name.empty())
      throw UsageError(fmt::format("JERBOA_CHECK names '{}', but the checks are finite and indices", name));
  }
  return checks;
}

std::vector<IndexOperand> index_operands(const Graph& graph, const Node& node) {
  std::vector<IndexOperand> found;
  const auto& operands = info(node.op).operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto& indexes = operands[i].indexes;
    if (!indexes || node.inputs[i] == no_tensor) continue;
    const Shape& shape = graph.shape(node.inputs[static_cast<std::size_t>(indexes->operand)]);
    const int axis = indexes->axis ? *indexes->axis : node.as<AxisAttrs>().axis;
    const Dim& limit = shape[static_cast<std::size_t>(axis_of(axis, static_cast<int>(shape.size())))];
    found.push_back({node.inputs[i], {limit, indexes->negative_is_none}});
  }
  return found;
}

std::string out_of_range(std::int64_t value, const std::string& tensor, Op op, std::int64_t limit,
                         const std::string& site) {
  return fmt::format("{} holds {}, which is out of range for {}: indices go from 0 to {}{}", tensor, value, name(op),
                     limit - 1, site.empty() ? "" : " (" + site + ")");
}

namespace {

class Checker {
 public:
  Checker(const Graph& from, const Checks& checks) : from_(from), checks_(checks), rewriter_(from, result_.graph) {}

  CheckedGraph run() {
    for (const Node& node : from_.nodes) {
      rewriter_.copy(node);
      const auto index = index_operands(from_, node);
      for (const IndexOperand& operand : index)
        if (checks_.indices) check_indices(node, operand);
      for (const TensorId output : node.outputs)
        if (checks_.finite && is_float(from_.type(output).dtype)) check_finite(node, output);
    }
    rewriter_.finish();
    const TensorId flags = add_output(finite_flags, flags_);
    add_output(index_extremes, extremes_);
    gate_updates(flags);
    return std::move(result_);
  }

 private:
  Graph& graph() { return result_.graph; }
  TensorId add(Op op, std::vector<TensorId> inputs, Attrs attrs = NoAttrs{}) {
    return graph().add_node(op, std::move(inputs), std::move(attrs), "")[0];
  }
  TensorId number(double value, DType dtype) { return add(Op::const_scalar, {}, ConstScalarAttrs{value, dtype}); }
  TensorId as_i32(TensorId id) {
    return graph().type(id).dtype == DType::i32 ? id : add(Op::cast, {id}, CastAttrs{DType::i32});
  }
  CheckedGraph::Value describe(TensorId old) const {
    const Node& made = from_.producer(old);
    return {from_.tensor(old).name, made.op, made.site};
  }

  void check_finite(const Node& node, TensorId output) {
    if (node.op == Op::const_scalar) return;
    const TensorId finite = add(Op::all_finite, {rewriter_.at(output)});
    graph().rename(finite, from_.tensor(output).name + check_suffix);  // so that its kernel's label names the tensor
    flags_.push_back(as_i32(finite));
    result_.finite.push_back(describe(output));
  }

  void check_indices(const Node& node, const IndexOperand& operand) {
    const TensorId indices = as_i32(rewriter_.at(operand.tensor));
    const TensorId smallest = add(Op::min, {indices}, ReduceAttrs{}), largest = add(Op::max, {indices}, ReduceAttrs{});
    extremes_.push_back(smallest);
    extremes_.push_back(largest);
    result_.indices.push_back({describe(operand.tensor), node.op, node.site, operand.range});
    // Negative indices are out of range unless they mean "none". A limit that depends on a symbol is checked on the
    // host after the run.
    if (!operand.range.limit.is_constant()) return;
    const auto limit = static_cast<double>(operand.range.limit.value());
    TensorId holds = add(Op::less, {largest, number(limit, DType::i32)});
    if (!operand.range.negative_is_none)
      holds = add(Op::logical_and, {holds, add(Op::greater_equal, {smallest, number(0, DType::i32)})});
    if (element_count(graph().shape(indices)).upper_bound() > 0) conditions_.push_back(holds);
  }

  // The numbers concatenated, as an output.
  TensorId add_output(const char* name, const std::vector<TensorId>& numbers) {
    if (numbers.empty()) return no_tensor;
    std::vector<TensorId> lines;
    for (const TensorId id : numbers) lines.push_back(add(Op::reshape, {id}, ShapeAttrs{{Dim(1)}}));
    const TensorId all = lines.size() == 1 ? lines[0] : add(Op::concat, lines, AxisAttrs{0});
    graph().outputs.push_back({name, all});
    return all;
  }

  void gate_updates(TensorId flags) {
    if (flags != no_tensor)
      conditions_.push_back(add(Op::greater, {add(Op::min, {flags}, ReduceAttrs{}), number(0, DType::i32)}));
    if (conditions_.empty()) return;
    TensorId holds = conditions_[0];
    for (std::size_t i = 1; i < conditions_.size(); ++i) holds = add(Op::logical_and, {holds, conditions_[i]});
    for (Update& update : graph().updates) update.value = add(Op::where, {holds, update.value, update.target});
  }

  const Graph& from_;
  Checks checks_;
  CheckedGraph result_;
  detail::GraphRewriter rewriter_;
  std::vector<TensorId> flags_, extremes_, conditions_;
};

}  // namespace

CheckedGraph with_checks(const Graph& graph, const Checks& checks) { return Checker(graph, checks).run(); }

}  // namespace jerboa
