#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <iterator>
#include <string_view>

#include <jerboa/base/error.h>
#include <jerboa/ir/shapes.h>
#include <jerboa/transform/checks.h>
#include <jerboa/transform/loss_scaling.h>

#include "base/browser_build.h"
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

namespace detail {
// Pages check only whether computed values are finite.
constexpr bool has_index_checks = !is_browser_build;
}  // namespace detail

namespace {

class Checker {
 public:
  Checker(const Graph& from, const Checks& checks) : from_(from), checks_(checks), rewriter_(from, result_.graph) {}

  CheckedGraph run() {
    if (checks_.finite) find_scaled();
    for (const Node& node : from_.nodes) {
      rewriter_.copy(node);
      if (detail::has_index_checks && checks_.indices)
        for (const IndexOperand& operand : index_operands(from_, node)) check_indices(node, operand);
      for (const TensorId output : node.outputs)
        if (checks_.finite && is_float(from_.type(output).dtype)) check_finite(node, output);
    }
    rewriter_.finish();
    const TensorId flags = add_output(finite_flags, {in_line(flags_), scaled_flags()});
    if (detail::has_index_checks) add_output(index_extremes, {in_line(extremes_)});
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
  RunChecks::Value describe(TensorId old) const {
    const Node& made = from_.producer(old);
    return {from_.tensor(old).name, made.op, made.site};
  }

  void check_finite(const Node& node, TensorId output) {
    if (node.op == Op::const_scalar) return;
    const TensorId finite = add(Op::all_finite, {rewriter_.at(output)});
    graph().rename(finite, from_.tensor(output).name + check_suffix);  // so that its kernel's label names the tensor
    const bool is_scaled = scaled_[static_cast<std::size_t>(output)];
    (is_scaled ? scaled_flags_ : flags_).push_back(as_i32(finite));
    (is_scaled ? scaled_values_ : result_.checks.finite).push_back(describe(output));
  }

  // Marks the tensors that depend on the loss scale, among them the gradients kept between runs, which other graphs
  // scaled. Results that an update uses only if the gradients are finite must be finite again.
  void find_scaled() {
    scaled_ = std::vector<bool>(from_.tensors.size());
    const TensorId scale = from_.find(loss_scale_state);
    if (scale == no_tensor) return;
    for (const Update& update : from_.updates)
      if (update.target == scale) scale_update_ = &update;
    if (scale_update_ != nullptr) {
      const Node& choice = from_.producer(scale_update_->value);  // see update_loss_scale
      if (choice.op == Op::where) gradients_finite_ = choice.inputs[0];
    }
    const auto is_scaled = [&](TensorId id) { return id != no_tensor && scaled_[static_cast<std::size_t>(id)]; };
    for (const Node& node : from_.nodes) {
      const std::string& name = from_.tensor(node.outputs[0]).name;
      const bool is_source =
          node.op == Op::state_input && (node.outputs[0] == scale || name.starts_with(gradient_prefix));
      const bool is_tested = node.op == Op::where && node.inputs[0] == gradients_finite_;
      const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(), is_scaled) && !is_tested;
      for (const TensorId output : node.outputs) scaled_[static_cast<std::size_t>(output)] = is_source || follows;
    }
  }

  // A scaled tensor may overflow unless the overflow reaches the gradients and the scale cannot fall any further. (A
  // 16-bit tensor may overflow where it is stored for its check, while its reader has it unrounded.) A run that only
  // accumulates gradients leaves the scale to the run that applies them.
  TensorId scaled_flags() {
    if (scaled_flags_.empty() || scale_update_ == nullptr) return no_tensor;
    std::move(scaled_values_.begin(), scaled_values_.end(), std::back_inserter(result_.checks.finite));
    TensorId holds = add(Op::less, {rewriter_.at(scale_update_->value), rewriter_.at(scale_update_->target)});
    if (gradients_finite_ != no_tensor) holds = add(Op::logical_or, {holds, rewriter_.at(gradients_finite_)});
    return add(Op::maximum, {in_line(scaled_flags_), as_i32(holds)});
  }

  void check_indices(const Node& node, const IndexOperand& operand) {
    const TensorId indices = as_i32(rewriter_.at(operand.tensor));
    const TensorId smallest = add(Op::min, {indices}, ReduceAttrs{}), largest = add(Op::max, {indices}, ReduceAttrs{});
    extremes_.push_back(smallest);
    extremes_.push_back(largest);
    result_.checks.indices.push_back({from_.tensor(operand.tensor).name, node.op, node.site, operand.range});
    // Negative indices are out of range unless they mean "none". A limit that depends on a symbol is checked on the
    // host after the run.
    if (!operand.range.limit.is_constant()) return;
    const auto limit = static_cast<double>(operand.range.limit.value());
    TensorId holds = add(Op::less, {largest, number(limit, DType::i32)});
    if (!operand.range.negative_is_none)
      holds = add(Op::logical_and, {holds, add(Op::greater_equal, {smallest, number(0, DType::i32)})});
    if (element_count(graph().shape(indices)).upper_bound() > 0) conditions_.push_back(holds);
  }

  TensorId in_line(const std::vector<TensorId>& numbers) {
    std::vector<TensorId> lines;
    for (const TensorId id : numbers) lines.push_back(add(Op::reshape, {id}, ShapeAttrs{{Dim(1)}}));
    return joined(lines);
  }
  TensorId joined(const std::vector<TensorId>& lines) {
    if (lines.empty()) return no_tensor;
    return lines.size() == 1 ? lines[0] : add(Op::concat, lines, AxisAttrs{0});
  }
  // The given lines, as one output.
  TensorId add_output(const char* name, std::vector<TensorId> lines) {
    std::erase(lines, no_tensor);
    const TensorId all = joined(lines);
    if (all != no_tensor) graph().outputs.push_back({name, all});
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
  // For a graph that scales its loss: which tensors are scaled and, if it updates the scale, the next scale and whether
  // the gradients are finite.
  std::vector<bool> scaled_;
  const Update* scale_update_ = nullptr;
  TensorId gradients_finite_ = no_tensor;
  std::vector<TensorId> scaled_flags_;
  std::vector<RunChecks::Value> scaled_values_;
};

}  // namespace

CheckedGraph with_checks(const Graph& graph, const Checks& checks) { return Checker(graph, checks).run(); }

}  // namespace jerboa
