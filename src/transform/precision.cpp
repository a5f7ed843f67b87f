#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include <jerboa/transform/precision.h>

#include "base/value_range.h"
#include "transform/rewrite.h"

namespace jerboa {
namespace {

class MixedPrecision {
 public:
  explicit MixedPrecision(const Graph& from)
      : from_(from),
        rewriter_(from, to_),
        narrow_(from.nodes.size()),
        is_half_(from.tensors.size()),
        read_as_half_(from.tensors.size()) {}

  Graph run() {
    find_what_can_be_narrow();
    widen_what_only_wide_ops_read();
    narrow_what_moves_halves();
    for (std::size_t i = 0; i < from_.nodes.size(); ++i) rewrite(from_.nodes[i], narrow_[i]);
    for (const auto& [name, tensor] : from_.outputs) to_.outputs.push_back({name, as_written(tensor)});
    for (const auto& [name, tensor] : from_.captures) to_.captures.push_back({name, as_written(tensor)});
    for (const auto& [target, value] : from_.updates) to_.updates.push_back({rewriter_.at(target), as_written(value)});
    return std::move(to_);
  }

 private:
  void find_what_can_be_narrow() {
    for (std::size_t i = 0; i < from_.nodes.size(); ++i) {
      const Node& node = from_.nodes[i];
      if (node.inputs.empty()) continue;
      narrow_[i] = (has(node.op, Trait::Half) && is_float32(node)) || (has(node.op, Trait::KeepsHalf) && follows(node));
      for (const TensorId output : node.outputs) is_half_[static_cast<std::size_t>(output)] = narrow_[i];
    }
  }

  // Chains that end in a reduction, a loss or another op in f32 are computed in f32 from the product on: the square of
  // a value that fits f16 may overflow it.
  void widen_what_only_wide_ops_read() {
    for (std::size_t i = from_.nodes.size(); i-- > 0;) {
      const Node& node = from_.nodes[i];
      const auto is_read_as_half = [&](TensorId id) { return read_as_half_[static_cast<std::size_t>(id)]; };
      if (has(node.op, Trait::KeepsHalf) && std::none_of(node.outputs.begin(), node.outputs.end(), is_read_as_half))
        narrow_[i] = false;
      const bool rounds = node.op == Op::cast && from_.type(node.outputs[0]).dtype == DType::f16;
      if (!narrow_[i] && !rounds) continue;
      for (const TensorId input : node.inputs)
        if (input != no_tensor) read_as_half_[static_cast<std::size_t>(input)] = true;
    }
  }

  // Ops that only move values lose nothing in f16, whoever reads them.
  void narrow_what_moves_halves() {
    for (std::size_t i = 0; i < from_.nodes.size(); ++i) {
      const Node& node = from_.nodes[i];
      const bool moves = info(node.op).lowering == Lowering::View || has(node.op, Trait::Moves);
      if (moves && has(node.op, Trait::KeepsHalf)) narrow_[i] = follows(node);
      for (const TensorId output : node.outputs) is_half_[static_cast<std::size_t>(output)] = narrow_[i];
    }
  }

  void rewrite(const Node& node, bool narrow) {
    const std::size_t before = to_.tensors.size();
    if (node.inputs.empty()) return rewriter_.copy(node);
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

  // Whether an op that keeps halves would be given some, and nothing wider.
  bool follows(const Node& node) const {
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!is_float_operand(node, i)) continue;
      if (is_half_[static_cast<std::size_t>(node.inputs[i])])
        any = true;
      else if (from_.type(node.inputs[i]).dtype != DType::f32 || !adapts(node.inputs[i]))
        return false;
    }
    return any;
  }

  // Parameters and constants do not influence the type of ops that combine them with an activation.
  bool adapts(TensorId id) const {
    const Node& made = from_.producer(id);
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
  std::vector<bool> narrow_;                  // by node
  std::vector<bool> is_half_, read_as_half_;  // by tensor: whether it can be f16, and whether an op takes it as f16
  std::map<std::pair<TensorId, DType>, TensorId> casts_;
};

}  // namespace

Graph with_precision(const Graph& graph, Precision precision) {
  return precision == Precision::full ? graph : MixedPrecision(graph).run();
}

}  // namespace jerboa
