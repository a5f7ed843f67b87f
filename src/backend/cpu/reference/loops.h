#pragma once

#include <cstdint>

#include <jerboa/backend/reference.h>
#include <jerboa/ir/shapes.h>

namespace jerboa::reference {

/// Strides that read a tensor of shape `from` at the indices of `to`, which it broadcasts to.
Sizes broadcast_strides(const Sizes& from, const Sizes& to);

inline std::int64_t offset_of(const Sizes& index, const Sizes& strides) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

/// Advances to the next index of a shape in row-major order; the last wraps around to the first.
void advance(Sizes& index, const Sizes& sizes);

/// Calls visit(index) for every index of a shape, in row-major order.
template <class Visit>
void for_each_index(const Sizes& sizes, Visit visit) {
  const std::int64_t count = element_count(sizes);
  Sizes index(sizes.size(), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    visit(index);
    advance(index, sizes);
  }
}

/// A shape seen along one axis: [outer, size, inner].
struct AlongAxis {
  std::int64_t outer = 1, size = 1, inner = 1;

  AlongAxis(const Sizes& sizes, int axis) {
    const auto resolved = static_cast<std::size_t>(*resolve_axis(axis, static_cast<int>(sizes.size())));
    for (std::size_t i = 0; i < resolved; ++i) outer *= sizes[i];
    size = sizes[resolved];
    for (std::size_t i = resolved + 1; i < sizes.size(); ++i) inner *= sizes[i];
  }
  std::int64_t at(std::int64_t o, std::int64_t position, std::int64_t i) const {
    return (o * size + position) * inner + i;
  }
  /// Calls visit(o, i) for each line along the axis: its elements are at(o, 0, i), at(o, 1, i), …
  template <class Visit>
  void for_each_line(Visit visit) const {
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = 0; i < inner; ++i) visit(o, i);
  }
};

/// A number in the range of an integer type, modulo 2^32; other types are unchanged. Exact below 2^53.
double wrapped(double value, DType dtype);

}  // namespace jerboa::reference
