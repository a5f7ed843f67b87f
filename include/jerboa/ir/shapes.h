#pragma once

#include <optional>
#include <vector>

#include <jerboa/ir/attrs.h>

namespace jerboa {

// Shape arithmetic shared by the shape rules, the gradient rules and the kernels.

/// 0 … rank-1 for an axis that may count from the end; nullopt if it is out of range.
std::optional<int> resolve_axis(int axis, int rank);
/// Resolved, sorted and without repeats; all axes for an empty list. nullopt if one is out of range or repeated.
std::optional<std::vector<int>> resolve_axes(const std::vector<int>& axes, int rank);
/// The same for axes that a shape rule has already checked.
int axis_of(int axis, int rank);
std::vector<int> axes_of(const std::vector<int>& axes, int rank);
/// The NumPy broadcast of two shapes; nullopt if sizes differ and neither is 1.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);
/// Whether `from` broadcasts to exactly `to`.
bool broadcasts_to(const Shape& from, const Shape& to);
/// The axes of `to` along which broadcasting `from` to it repeats elements.
std::vector<int> broadcast_axes(const Shape& from, const Shape& to);

/// A slice with its numbers resolved: 0 <= start, `length` elements.
struct SliceRange {
  int axis = 0;
  Dim start = 0, length = 0;
  std::int64_t step = 1;
};
std::optional<SliceRange> resolve_slice(const SliceAttrs& attrs, const Shape& shape);

}  // namespace jerboa
