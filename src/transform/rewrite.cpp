#include "transform/rewrite.h"

namespace jerboa::detail {

std::vector<TensorId> GraphRewriter::at(const std::vector<TensorId>& old) const {
  std::vector<TensorId> ids;
  ids.reserve(old.size());
  for (const TensorId id : old) ids.push_back(at(id));
  return ids;
}

// Types need not be inferred again if the operands' types are unchanged.
const TensorType* GraphRewriter::known_type(const Node& node, const std::vector<TensorId>& inputs) const {
  const TensorType& first = from_.type(node.outputs[0]);
  if (is_stored_leaf(node.op)) return &first;
  if (node.outputs.size() != 1) return nullptr;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != no_tensor && !(to_.type(inputs[i]) == from_.type(node.inputs[i]))) return nullptr;
  return &first;
}

void GraphRewriter::copy(const Node& node) {
  const std::size_t before = to_.tensors.size();
  auto inputs = at(node.inputs);
  const TensorType* type = known_type(node, inputs);
  const auto made = to_.add_node(node.op, std::move(inputs), node.attrs, node.site, type,
                                 from_.tensor(node.outputs[0]).storage, false);
  replace(node, made, before);
}

void GraphRewriter::replace(const Node& node, const std::vector<TensorId>& made, std::size_t tensors_before) {
  // The replacement of a recomputed node is tagged `recompute` too.
  if (node.recompute)
    for (std::size_t i = tensors_before; i < to_.tensors.size(); ++i)
      to_.nodes[static_cast<std::size_t>(to_.tensors[i].producer)].recompute = true;
  for (std::size_t i = 0; i < made.size(); ++i) {
    moved_[static_cast<std::size_t>(node.outputs[i])] = made[i];
    if (made[i] < static_cast<TensorId>(tensors_before)) continue;
    const TensorInfo& old = from_.tensor(node.outputs[i]);
    to_.rename(made[i], old.name);
    TensorInfo& fresh = to_.tensor(made[i]);
    fresh.is_rate = old.is_rate;
    fresh.init = old.init;
    fresh.trainable = old.trainable;
    fresh.decay = old.decay;
    fresh.tied_to = old.tied_to;
  }
}

void GraphRewriter::finish() {
  for (const auto& [name, tensor] : from_.outputs) to_.outputs.push_back({name, at(tensor)});
  for (const auto& [name, tensor] : from_.captures) to_.captures.push_back({name, at(tensor)});
  for (const auto& [target, value] : from_.updates) to_.updates.push_back({at(target), at(value)});
}

}  // namespace jerboa::detail
