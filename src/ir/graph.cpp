#include <algorithm>
#include <atomic>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>

#include "ir/shape_rules.h"

namespace jerboa {

std::string to_string(const TensorType& type) { return std::string(name(type.dtype)) + to_string(type.shape); }

std::string_view name(Storage storage) {
  constexpr auto names = std::to_array<std::string_view>({"input", "param", "state", "constant", "activation"});
  return names[static_cast<std::size_t>(storage)];
}

namespace {

// Ensures that element counts, strides and byte counts, even at the symbols' upper bounds, cannot overflow later.
void check_size(Op op, const TensorType& type) {
  std::int64_t total = bits(type.dtype);
  for (const Dim& dim : type.shape)
    if (__builtin_mul_overflow(total, std::max<std::int64_t>(dim.upper_bound(), 1), &total))
      throw ShapeError(fmt::format("{}: {} has more elements than 64 bits can count", name(op), to_string(type)));
}

}  // namespace

std::vector<TensorType> infer(Op op, std::span<const TensorType* const> inputs, const Attrs& attrs) {
  using Rule = shape_rule::Types (*)(const shape_rule::Call&);
  static constexpr Rule rules[] = {
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) &shape_rule::rule,
#include <jerboa/ir/ops.def>
#undef OP
  };
  const OpInfo& row = info(op);
  if (attrs.index() != row.default_attrs.index())
    throw GraphError(fmt::format("{}: its attributes must be {}", row.name, row.attrs_name));
  const bool variadic = !row.operands.empty() && row.operands.back().variadic;
  if (variadic ? inputs.empty() : inputs.size() != row.operands.size())
    throw GraphError(fmt::format("{}: takes {} operands, not {}", row.name, row.operands.size(), inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const OperandInfo& operand = row.operands[variadic ? 0 : i];
    if (inputs[i] == nullptr && !operand.optional)
      throw GraphError(fmt::format("{}: the operand {} is missing", row.name, operand.name));
  }
  auto types = rules[static_cast<std::size_t>(op)]({op, inputs, attrs});
  for (const TensorType& type : types) {
    for (const Dim& dim : type.shape)
      if (dim.is_constant() && dim.value() < 0)
        throw ShapeError(fmt::format("{}: {} has a negative size", row.name, to_string(type.shape)));
    check_size(op, type);
  }
  return types;
}

std::uint64_t Graph::next_identity() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::vector<TensorId> Graph::add_node(Op op, std::vector<TensorId> inputs, Attrs attrs, std::string site,
                                      const TensorType* known_type, Storage storage, bool named) {
  // Optional operands at the end may be left out.
  const auto& operands = info(op).operands;
  while (inputs.size() < operands.size() && operands[inputs.size()].optional) inputs.push_back(no_tensor);
  std::vector<TensorType> types;
  try {
    if (known_type != nullptr) {
      check_size(op, *known_type);
      types.push_back(*known_type);
    } else {
      std::vector<const TensorType*> input_types;
      for (const TensorId id : inputs) input_types.push_back(id == no_tensor ? nullptr : &type(id));
      types = infer(op, input_types, attrs);
    }
  } catch (const ShapeError& error) {
    throw ShapeError(site.empty() ? error.what() : fmt::format("{} ({})", error.what(), site));
  }
  const auto node = static_cast<NodeId>(nodes.size());
  std::vector<TensorId> outputs_of_node;
  for (TensorType& type : types) {
    const auto id = static_cast<TensorId>(tensors.size());
    TensorInfo tensor;
    tensor.type = std::move(type);
    tensor.storage = storage;
    tensor.producer = node;
    tensors.push_back(std::move(tensor));
    if (named) rename(id, fmt::format("{}_{}", jerboa::name(op), node));
    outputs_of_node.push_back(id);
  }
  nodes.push_back({op, std::move(inputs), outputs_of_node, std::move(attrs), std::move(site), false});
  return outputs_of_node;
}

void Graph::rename(TensorId id, const std::string& name) {
  std::string& current = tensor(id).name;
  if (current == name) return;
  const auto [holder, fresh] = names_.try_emplace(name, id);
  if (fresh) {
    if (!current.empty()) names_.erase(current);
    current = name;
    return;
  }
  if (tensor(id).storage != Storage::activation && tensor(holder->second).storage == Storage::activation)
    rename(holder->second, name + ".1");
  std::string free = name;
  for (int suffix = 1; names_.contains(free); ++suffix) free = fmt::format("{}.{}", name, suffix);
  if (!current.empty()) names_.erase(current);
  current = free;
  names_.emplace(std::move(free), id);
}

TensorId Graph::find(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? no_tensor : found->second;
}

std::map<std::string, std::int64_t> Graph::symbols() const {
  std::map<std::string, std::int64_t> bounds;
  for (const TensorInfo& tensor : tensors)
    for (const Dim& dim : tensor.type.shape) dim.collect_symbols(bounds);
  return bounds;
}

}  // namespace jerboa
