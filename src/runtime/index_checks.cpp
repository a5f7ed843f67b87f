#include "runtime/index_checks.h"

#include <algorithm>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/ir/shapes.h>

namespace jerboa::detail {
namespace {

// Ops that only reorder or select elements of their operand.
bool moves_elements(const Node& node) {
  switch (node.op) {
    case Op::reshape:
    case Op::transpose:
    case Op::swap_axes:
    case Op::squeeze:
    case Op::unsqueeze:
    case Op::broadcast_to:
    case Op::slice:
    case Op::split:
    case Op::cast: return true;
    default: return false;
  }
}

// The moves from an input to the tensor, in order; false if it is computed.
bool follow(const Graph& graph, TensorId tensor, InputIndices& found) {
  while (graph.tensor(tensor).storage != Storage::input) {
    const Node& node = graph.producer(tensor);
    if (!moves_elements(node) || !is_integer(graph.type(node.inputs[0]).dtype)) return false;
    const auto output = std::find(node.outputs.begin(), node.outputs.end(), tensor) - node.outputs.begin();
    found.moves.push_back({node, graph.shape(node.inputs[0]), static_cast<std::size_t>(output)});
    tensor = node.inputs[0];
  }
  std::reverse(found.moves.begin(), found.moves.end());
  found.input = graph.tensor(tensor).name;
  return is_integer(graph.type(tensor).dtype);
}

struct Values {
  Sizes sizes;
  std::vector<std::int64_t> elements;
};

Values part_of(const Values& from, std::size_t axis, std::int64_t start, std::int64_t length, std::int64_t step) {
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  const auto at = from.sizes.begin() + static_cast<std::ptrdiff_t>(axis);
  const std::int64_t outer = product(from.sizes.begin(), at), inner = product(at + 1, from.sizes.end());
  Values part{from.sizes, {}};
  part.sizes[axis] = length;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t k = 0; k < length; ++k) {
      const auto first = from.elements.begin() + (o * *at + start + k * step) * inner;
      part.elements.insert(part.elements.end(), first, first + inner);
    }
  return part;
}

Values permuted(const Values& from, const std::vector<std::size_t>& order) {
  const std::size_t rank = order.size();
  std::vector<std::int64_t> strides(rank, 1);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * from.sizes[i];
  Values result;
  for (const std::size_t axis : order) result.sizes.push_back(from.sizes[axis]);
  std::vector<std::int64_t> index(rank, 0);
  for (std::size_t element = 0; element < from.elements.size(); ++element) {
    std::int64_t place = 0;
    for (std::size_t i = 0; i < rank; ++i) place += index[i] * strides[order[i]];
    result.elements.push_back(from.elements[static_cast<std::size_t>(place)]);
    for (std::size_t i = rank; i-- > 0;) {
      if (++index[i] < result.sizes[i]) break;
      index[i] = 0;
    }
  }
  return result;
}

Values moved(const Values& from, const InputIndices::Move& move, const SymbolValues& symbols) {
  const Node& node = move.node;
  const int rank = static_cast<int>(from.sizes.size());
  const auto axis_at = [&](int axis) { return static_cast<std::size_t>(axis_of(axis, rank)); };
  std::vector<std::size_t> order(from.sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  switch (node.op) {
    case Op::slice: {
      const SliceRange range = *resolve_slice(node.as<SliceAttrs>(), move.operand);
      return part_of(from, static_cast<std::size_t>(range.axis), range.start.evaluate(symbols),
                     range.length.evaluate(symbols), range.step);
    }
    case Op::split: {
      const auto& attrs = node.as<SplitAttrs>();
      std::int64_t start = 0;
      for (std::size_t i = 0; i < move.output; ++i) start += attrs.sizes[i].evaluate(symbols);
      return part_of(from, axis_at(attrs.axis), start, attrs.sizes[move.output].evaluate(symbols), 1);
    }
    case Op::transpose:
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = axis_at(node.as<TransposeAttrs>().perm[i]);
      return permuted(from, order);
    case Op::swap_axes:
      std::swap(order[axis_at(node.as<SwapAxesAttrs>().a)], order[axis_at(node.as<SwapAxesAttrs>().b)]);
      return permuted(from, order);
    default: return from;
  }
}

bool takes_a_part(const InputIndices::Move& move) { return move.node.op == Op::slice || move.node.op == Op::split; }

}  // namespace

std::vector<InputIndices> find_input_indices(const Graph& graph) {
  std::vector<InputIndices> all;
  for (const Node& node : graph.nodes)
    for (const IndexOperand& operand : index_operands(graph, node)) {
      InputIndices found;
      found.range = operand.range;
      found.user = node.op;
      found.site = node.site;
      if (follow(graph, operand.tensor, found)) all.push_back(std::move(found));
    }
  return all;
}

namespace {

void check(const InputIndices& checked, std::int64_t value, std::int64_t limit) {
  if (value >= limit || (value < 0 && !checked.range.negative_is_none))
    throw UsageError(out_of_range(value, "input " + checked.input, checked.user, limit, checked.site));
}

// The values that reach the op. A reshape on the way needs its result's sizes.
Values values_of(const InputIndices& checked, const HostTensor& input, const SymbolValues& symbols) {
  Values values{input.shape(), {}};
  for (std::int64_t i = 0; i < input.size(); ++i) values.elements.push_back(static_cast<std::int64_t>(input.number(i)));
  const auto last = std::find_if(checked.moves.rbegin(), checked.moves.rend(), takes_a_part).base();
  for (auto move = checked.moves.begin(); move != last; ++move) {
    values = moved(values, *move, symbols);
    if (move + 1 != last) values.sizes = evaluate((move + 1)->operand, symbols);
  }
  return values;
}

}  // namespace

void check_input_indices(const std::vector<InputIndices>& indices, const TensorMap& inputs,
                         const SymbolValues& symbols) {
  for (const InputIndices& checked : indices) {
    const HostTensor& input = inputs.at(checked.input);
    const std::int64_t limit = checked.range.limit.evaluate(symbols);
    if (std::none_of(checked.moves.begin(), checked.moves.end(), takes_a_part) && input.dtype() == DType::i32) {
      for (const std::int32_t value : input.i32()) check(checked, value, limit);
      continue;
    }
    for (const std::int64_t value : values_of(checked, input, symbols).elements) check(checked, value, limit);
  }
}

}  // namespace jerboa::detail
