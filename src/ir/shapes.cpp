#include <algorithm>

#include <jerboa/ir/shapes.h>

namespace jerboa {

std::optional<int> resolve_axis(int axis, int rank) {
  const int resolved = axis < 0 ? axis + rank : axis;
  if (resolved < 0 || resolved >= rank) return std::nullopt;
  return resolved;
}

std::optional<std::vector<int>> resolve_axes(const std::vector<int>& axes, int rank) {
  std::vector<int> resolved;
  if (axes.empty())
    for (int axis = 0; axis < rank; ++axis) resolved.push_back(axis);
  for (const int axis : axes) {
    const auto one = resolve_axis(axis, rank);
    if (!one) return std::nullopt;
    resolved.push_back(*one);
  }
  std::sort(resolved.begin(), resolved.end());
  if (std::adjacent_find(resolved.begin(), resolved.end()) != resolved.end()) return std::nullopt;
  return resolved;
}

int axis_of(int axis, int rank) { return resolve_axis(axis, rank).value(); }

std::vector<int> axes_of(const std::vector<int>& axes, int rank) { return resolve_axes(axes, rank).value(); }

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), Dim(1));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Dim x = i < a.size() ? a[a.size() - 1 - i] : Dim(1);
    const Dim y = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
    if (!(x == y) && !(x == Dim(1)) && !(y == Dim(1))) return std::nullopt;
    result[result.size() - 1 - i] = x == Dim(1) ? y : x;
  }
  return result;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  const auto both = broadcast(from, to);
  return both && *both == to;
}

std::vector<int> broadcast_axes(const Shape& from, const Shape& to) {
  std::vector<int> axes;
  const std::size_t added = to.size() - from.size();
  for (std::size_t i = 0; i < to.size(); ++i)
    if (i < added || !(from[i - added] == to[i])) axes.push_back(static_cast<int>(i));
  return axes;
}

std::optional<SliceRange> resolve_slice(const SliceAttrs& attrs, const Shape& shape) {
  const auto axis = resolve_axis(attrs.axis, static_cast<int>(shape.size()));
  if (!axis || attrs.step < 1) return std::nullopt;
  const Dim& size = shape[static_cast<std::size_t>(*axis)];
  const auto from_end = [&](const Dim& at) { return at.is_constant() && at.value() < 0 ? size + at : at; };
  Dim start = from_end(attrs.start);
  Dim end = from_end(attrs.end);
  if (start.is_constant() && end.is_constant() && size.is_constant()) {
    // As in NumPy, numbers past the ends are clamped.
    end = std::clamp<std::int64_t>(end.value(), 0, size.value());
    start = std::clamp<std::int64_t>(start.value(), 0, end.value());
  } else if (start.lower_bound() < 0 || (end - start).lower_bound() < 0 || (size - end).lower_bound() < 0) {
    return std::nullopt;
  }
  return SliceRange{*axis, start, floor_divide(end - start + Dim(attrs.step - 1), attrs.step), attrs.step};
}

}  // namespace jerboa
