#include "transform/cotangent.h"

#include <algorithm>

#include <jerboa/ops/ops.h>

namespace jerboa::detail {
namespace {

Tensor padded(const Contribution& part, const Shape& shape) {
  Shape before(shape.size(), Dim(0)), after = before;
  const auto axis = static_cast<std::size_t>(part.axis);
  before[axis] = part.start;
  after[axis] = shape[axis] - part.start - part.tensor.dim(part.axis);
  return pad(part.tensor, before, after);
}

std::int64_t start_of(const Contribution& part) { return part.start.value(); }
std::int64_t end_of(const Contribution& part) { return part.start.value() + part.tensor.dim(part.axis).value(); }

// Parts that do not overlap, in order, with zeros in between.
Tensor concatenated(const std::vector<Contribution>& parts, const Shape& shape) {
  const int axis = parts.front().axis;
  std::vector<Operand> pieces;
  std::int64_t end = 0;
  const auto fill_up_to = [&](std::int64_t start) {
    if (start == end) return;
    Shape gap = shape;
    gap[static_cast<std::size_t>(axis)] = start - end;
    pieces.emplace_back(zeros(gap, parts.front().tensor.dtype()));
  };
  for (const Contribution& part : parts) {
    fill_up_to(start_of(part));
    pieces.emplace_back(part.tensor);
    end = end_of(part);
  }
  fill_up_to(shape[static_cast<std::size_t>(axis)].value());
  return concat(pieces, axis);
}

}  // namespace

void Cotangent::add(const Contribution& more) {
  if (more.is_part())
    parts_.push_back(more);
  else
    add_whole(more.tensor);
}

void Cotangent::add_whole(const Tensor& more) { whole_ = whole_ ? whole_ + more : more; }

Tensor Cotangent::total(const Shape& shape) {
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) add_parts_along(axis, shape);
  parts_.clear();
  return whole_;
}

void Cotangent::add_parts_along(int axis, const Shape& shape) {
  std::vector<Contribution> open;
  for (const Contribution& part : parts_) {
    if (part.axis != axis) continue;
    // Symbolic offsets cannot be sorted.
    const bool known = part.start.is_constant() && part.tensor.dim(axis).is_constant() &&
                       shape[static_cast<std::size_t>(axis)].is_constant();
    if (known)
      open.push_back(part);
    else
      add_whole(padded(part, shape));
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Contribution& a, const Contribution& b) { return start_of(a) < start_of(b); });
  // If slices overlap, one concatenation takes as many as it can, and the next takes the rest.
  while (!open.empty()) {
    std::vector<Contribution> layer, left;
    std::int64_t end = 0;
    for (const Contribution& part : open) {
      const bool free = start_of(part) >= end;
      (free ? layer : left).push_back(part);
      if (free) end = end_of(part);
    }
    add_whole(layer.size() == 1 ? padded(layer.front(), shape) : concatenated(layer, shape));
    open = std::move(left);
  }
}

}  // namespace jerboa::detail
