#include <algorithm>
#include <limits>
#include <map>

#include <jerboa/transform/precision.h>

#include "base/value_range.h"
#include "transform/rewrite.h"

namespace jerboa {
namespace {

class MixedPrecision {
 public:
  explicit MixedPrecision(const Graph& from) : from_(from), rewriter_(from, to_) {}

  Graph run() {
    for (const Node& node : from_.nodes) rewrite(node);
    for (const auto& [name, tensor] : from_.outputs) to_.outputs.push_back({name, as_written(tensor)});
    for (const auto& [name, tensor] : from_.captures) to_.captures.push_back({name, as_written(tensor)});
    for (const auto& [target, value] : from_.updates) to_.updates.push_back({rewriter_.at(target), as_written(value)});
    return std::move(to_);
  }

 private:
  void rewrite(const Node& node) {
    const std::size_t before = to_.tensors.size();
    if (node.inputs.empty()) return rewriter_.copy(node);
    const bool narrow =
        (has(node.op, Trait::Half) && is_float32(node)) || (has(node.op, Trait::KeepsHalf) && narrows(node));
    std::vector<TensorId> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(narrow && is_float_operand(node, i) ? narrowed(node, i) : as_written(node.inputs[i]));
    const TensorInfo& first = from_.tensor(node.outputs[0]);
    const auto made = to_.add_node(node.op, std::move(inputs), node.attrs, node.site, nullptr, first.storage);
    rewriter_.replace(node, made, before);
  }

  bool is_float_operand(const Node& node, std::size_t i) const {
    return node.inputs[i] != no_tensor && is_float(from_.type(node.inputs[i]).dtype);
  }

  // Types that the user chose explicitly stay.
  bool is_float32(const Node& node) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (is_float_operand(node, i) && (from_.type(node.inputs[i]).dtype != DType::f32 || is_kept(node.inputs[i])))
        return false;
    return true;
  }

  // A cache would have to be converted as a whole at each step.
  bool is_kept(TensorId id) const {
    const Node& made = from_.producer(id);
    if (made.op == Op::cache_append) return true;
    if (info(made.op).lowering == Lowering::View) return is_kept(made.inputs[0]);
    return from_.tensor(id).storage == Storage::state;
  }

  bool narrows(const Node& node) const {
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!is_float_operand(node, i)) continue;
      const TensorId now = rewriter_.at(node.inputs[i]);
      const DType written = from_.type(node.inputs[i]).dtype;
      if (written == DType::f32 && to_.type(now).dtype == DType::f16)
        any = true;
      else if (written != DType::f32 || !adapts(now))
        return false;
    }
    return any;
  }

  // Parameters and constants do not influence the type of ops that combine them with an activation.
  bool adapts(TensorId id) const {
    const Node& made = to_.producer(id);
    if (info(made.op).lowering == Lowering::View) return adapts(made.inputs[0]);
    return made.op == Op::const_scalar || made.op == Op::param_input || made.op == Op::constant;
  }

  TensorId narrowed(const Node& node, std::size_t operand) {
    const TensorId now = rewriter_.at(node.inputs[operand]);
    constexpr std::size_t mask = 3;
    // The f32 masking value exceeds the range of f16.
    if (node.op == Op::attention && operand == mask && to_.type(now).dtype == DType::f32)
      return cast(
          to_.add_node(Op::clamp, {now},
                       ClampAttrs{detail::lowest_value(DType::f16), detail::highest_value(DType::f16)}, node.site)[0],
          DType::f16);
    return cast(now, DType::f16);
  }

  TensorId as_written(TensorId old) {
    return old == no_tensor ? no_tensor : cast(rewriter_.at(old), from_.type(old).dtype);
  }

  TensorId cast(TensorId id, DType dtype) {
    if (to_.type(id).dtype == dtype) return id;
    const auto [known, fresh] = casts_.emplace(std::pair(id, dtype), no_tensor);
    if (!fresh) return known->second;
    const Node made = to_.producer(id);
    // Tensors stored as f16 and widened in the graph, such as weights or the results of attention over caches, are
    // multiplied in the stored type.
    if (const TensorId stored = before_widening(id, dtype); stored != no_tensor)
      known->second = stored;
    else if (made.op == Op::const_scalar)
      known->second =
          to_.add_node(Op::const_scalar, {}, ConstScalarAttrs{made.as<ConstScalarAttrs>().value, dtype}, made.site)[0];
    else
      known->second = to_.add_node(Op::cast, {id}, CastAttrs{dtype}, made.site)[0];
    return known->second;
  }

  // The tensor that a tensor was widened from, with the same views, if it has this type; otherwise no_tensor.
  TensorId before_widening(TensorId id, DType dtype) {
    const Node made = to_.producer(id);
    if (made.op == Op::cast)
      return to_.type(made.inputs[0]).dtype == dtype && to_.type(id).dtype == DType::f32 ? made.inputs[0] : no_tensor;
    if (info(made.op).lowering != Lowering::View) return no_tensor;
    const TensorId viewed = before_widening(made.inputs[0], dtype);
    return viewed == no_tensor ? no_tensor : to_.add_node(made.op, {viewed}, made.attrs, made.site)[0];
  }

  const Graph& from_;
  Graph to_;
  detail::GraphRewriter rewriter_;
  std::map<std::pair<TensorId, DType>, TensorId> casts_;
};

}  // namespace

Graph with_precision(const Graph& graph, Precision precision) {
  return precision == Precision::full ? graph : MixedPrecision(graph).run();
}

}  // namespace jerboa
