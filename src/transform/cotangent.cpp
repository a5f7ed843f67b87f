#include "transform/cotangent.h"

#include <algorithm>
#include <map>
#include <utility>

#include <jerboa/ops/ops.h>

#include "base/stable_sort.h"

namespace jerboa::detail {
namespace {

Dim size_of(const Contribution& part, std::size_t axis) { return part.tensor.dim(static_cast<int>(axis)); }
bool covers(const Contribution& part, std::size_t axis, const Shape& shape) {
  return size_of(part, axis) == shape[axis];
}
std::int64_t start_of(const Contribution& part, std::size_t axis) { return part.starts[axis].value(); }
std::int64_t end_of(const Contribution& part, std::size_t axis) {
  return start_of(part, axis) + size_of(part, axis).value();
}

// Symbolic offsets cannot be sorted.
bool is_known(const Contribution& part, const Shape& shape) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    if (!covers(part, axis, shape) &&
        !(part.starts[axis].is_constant() && size_of(part, axis).is_constant() && shape[axis].is_constant()))
      return false;
  return true;
}

// The position of a part along the other axes. Parts with equal positions are in one row.
std::vector<std::int64_t> row_of(const Contribution& part, std::size_t axis, const Shape& shape) {
  std::vector<std::int64_t> row;
  for (std::size_t other = 0; other < shape.size(); ++other) {
    if (other == axis) continue;
    const bool whole = covers(part, other, shape);
    row.push_back(whole ? -1 : start_of(part, other));
    row.push_back(whole ? -1 : end_of(part, other));
  }
  return row;
}

Tensor padded(const Contribution& part, const Shape& shape) {
  Shape before(shape.size(), Dim(0)), after = before;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (covers(part, axis, shape)) continue;
    before[axis] = part.starts[axis];
    after[axis] = shape[axis] - part.starts[axis] - size_of(part, axis);
  }
  return pad(part.tensor, before, after);
}

// Concatenates disjoint parts of a row, in order, with zeros in between.
Tensor concatenated(const std::vector<Contribution>& parts, const Shape& row, std::size_t axis) {
  std::vector<Operand> pieces;
  std::int64_t end = 0;
  const auto fill_up_to = [&](std::int64_t start) {
    if (start == end) return;
    Shape gap = row;
    gap[axis] = start - end;
    pieces.emplace_back(zeros(gap, parts.front().tensor.dtype()));
  };
  for (const Contribution& part : parts) {
    fill_up_to(start_of(part, axis));
    pieces.emplace_back(part.tensor);
    end = end_of(part, axis);
  }
  fill_up_to(row[axis].value());
  return concat(pieces, static_cast<int>(axis));
}

// The part as one of the same elements in shape `to`, if it is a block there. An axis is the same in both shapes if it
// is as long and as many elements come before it.
std::optional<Contribution> reshaped(const Contribution& part, const Shape& from, const Shape& to) {
  Shape starts(to.size(), Dim(0)), sizes = to;
  Dim before(1), before_there(1);
  std::size_t there = 0;
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    if (!covers(part, axis, from)) {
      while (there < to.size() && !(before_there == before && to[there] == from[axis]))
        before_there = before_there * to[there++];
      if (there == to.size()) return std::nullopt;
      starts[there] = part.starts[axis];
      sizes[there] = size_of(part, axis);
    }
    before = before * from[axis];
  }
  Contribution result = part;
  result.tensor = reshape(part.tensor, sizes);
  result.starts = starts;
  return result;
}

}  // namespace

void Cotangent::add(const Contribution& more) {
  if (more.is_part())
    parts_.push_back(more);
  else
    add_whole(more.tensor);
}

void Cotangent::pass_blocks_on(Cotangent& operand, const Shape& from, const Shape& to) {
  if (whole_) return;
  for (const Contribution& part : std::exchange(parts_, {})) {
    if (const auto block = reshaped(part, from, to))
      operand.add(*block);
    else
      parts_.push_back(part);
  }
}

void Cotangent::add_whole(const Tensor& more) { whole_ = whole_ ? whole_ + more : more; }

std::optional<Contribution> Cotangent::single_part() const {
  if (whole_ || parts_.size() != 1) return std::nullopt;
  return parts_.front();
}

Tensor Cotangent::total(const Shape& shape) {
  const bool alone = parts_.size() == 1;
  for (const Contribution& part : std::exchange(parts_, {})) {
    if (!alone && is_known(part, shape))
      parts_.push_back(part);
    else
      add_whole(padded(part, shape));
  }
  // Rows along the last axes are short, and contiguous in what they are joined to. A part that is alone in its row may
  // have others along another axis, with which it is padded as one.
  for (const bool with_lone_parts : {false, true})
    for (std::size_t axis = shape.size(); axis-- > 0;) join_parts_along(axis, shape, with_lone_parts);
  for (const Contribution& part : std::exchange(parts_, {})) add_whole(part.tensor);
  return whole_;
}

// Replaces the parts that cover only some of an axis by ones that cover all of it.
void Cotangent::join_parts_along(std::size_t axis, const Shape& shape, bool with_lone_parts) {
  std::map<std::vector<std::int64_t>, std::vector<Contribution>> rows;
  for (const Contribution& part : std::exchange(parts_, {}))
    (covers(part, axis, shape) ? parts_ : rows[row_of(part, axis, shape)]).push_back(part);
  for (auto& [place, row] : rows) {
    if (row.size() == 1 && !with_lone_parts) {
      parts_.push_back(row.front());
      continue;
    }
    detail::stable_sort(
        row, [&](const Contribution& a, const Contribution& b) { return start_of(a, axis) < start_of(b, axis); });
    join(std::move(row), axis, shape);
  }
}

void Cotangent::join(std::vector<Contribution> row, std::size_t axis, const Shape& shape) {
  // If slices overlap, one concatenation takes as many as it can, and the next takes the rest.
  while (!row.empty()) {
    std::vector<Contribution> layer, left;
    std::int64_t end = 0;
    for (const Contribution& part : row) {
      const bool free = start_of(part, axis) >= end;
      (free ? layer : left).push_back(part);
      if (free) end = end_of(part, axis);
    }
    Contribution joined = layer.front();
    Shape whole_row = joined.tensor.shape();
    whole_row[axis] = shape[axis];
    joined.tensor = layer.size() == 1 ? padded(joined, whole_row) : concatenated(layer, whole_row, axis);
    joined.starts[axis] = 0;
    parts_.push_back(joined);
    row = std::move(left);
  }
}

}  // namespace jerboa::detail
