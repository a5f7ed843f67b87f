#include "lower/access.h"

#include <jerboa/ir/shapes.h>

namespace jerboa::detail {

Access identity_access(std::size_t rank) {
  Access access;
  for (std::size_t i = 0; i < rank; ++i) access.push_back(AffineIndex::axis(static_cast<int>(i)));
  return access;
}

Access broadcast_access(const Access& result, const Shape& result_shape, const Shape& operand_shape) {
  const std::size_t added = result_shape.size() - operand_shape.size();
  Access access;
  for (std::size_t i = 0; i < operand_shape.size(); ++i)
    access.push_back(operand_shape[i] == Dim(1) && !(result_shape[i + added] == Dim(1)) ? AffineIndex{}
                                                                                        : result[i + added]);
  return access;
}

namespace {

std::optional<Access> reshape_operand_access(const Shape& from, const Shape& to, const Access& result) {
  Access access;
  std::size_t j = 0;
  for (const Dim& size : from) {
    if (size == Dim(1)) {
      access.push_back({});
      continue;
    }
    while (j < to.size() && to[j] == Dim(1)) ++j;
    if (j == to.size() || !(to[j] == size)) return std::nullopt;
    access.push_back(result[j++]);
  }
  while (j < to.size() && to[j] == Dim(1)) ++j;
  if (j != to.size()) return std::nullopt;
  return access;
}

}  // namespace

std::optional<Access> view_operand_access(const Graph& graph, const Node& view, const Access& result) {
  const Shape& from = graph.shape(view.inputs[0]);
  const Shape& to = graph.shape(view.outputs[0]);
  switch (view.op) {
    case Op::reshape: return reshape_operand_access(from, to, result);
    case Op::broadcast_to: return broadcast_access(result, to, from);
    case Op::transpose: {
      Access access(from.size());
      const auto& perm = view.as<TransposeAttrs>().perm;
      for (std::size_t i = 0; i < perm.size(); ++i)
        access[static_cast<std::size_t>(axis_of(perm[i], static_cast<int>(from.size())))] = result[i];
      return access;
    }
    case Op::slice: {
      const SliceRange range = resolve_slice(view.as<SliceAttrs>(), from).value();
      Access access = result;
      AffineIndex& index = access[static_cast<std::size_t>(range.axis)];
      for (auto& [axis, coefficient] : index.terms) coefficient = coefficient * Dim(range.step);
      index.offset = index.offset * Dim(range.step) + range.start;
      return access;
    }
    default: return std::nullopt;
  }
}

IndexMap index_map(const Access& access, const Dim& offset, const std::vector<Dim>& strides, std::size_t domain_rank) {
  IndexMap map{offset, std::vector<Dim>(domain_rank, Dim(0))};
  for (std::size_t i = 0; i < access.size(); ++i) {
    map.offset = map.offset + access[i].offset * strides[i];
    for (const auto& [axis, coefficient] : access[i].terms)
      map.strides[static_cast<std::size_t>(axis)] =
          map.strides[static_cast<std::size_t>(axis)] + coefficient * strides[i];
  }
  return map;
}

}  // namespace jerboa::detail
