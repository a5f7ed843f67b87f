#pragma once

#include <algorithm>
#include <vector>

#include <jerboa/lower/program.h>

// Decides when several axes of a strided array can be treated as one. Sizes and strides are numbers, or expressions
// over symbols (Dim).
namespace jerboa::detail {

/// Row-major strides in elements.
inline std::vector<Dim> row_major_strides(const Shape& shape) {
  std::vector<Dim> strides(shape.size(), Dim(1));
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// Whether elements are in row-major order, with stride `innermost`. Axes of size 1 do not matter.
template <class Size>
bool is_row_major(const std::vector<Size>& sizes, const std::vector<Size>& strides, Size innermost = Size(1)) {
  Size expected = innermost;
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    if (sizes[axis] == Size(1)) continue;
    if (!(strides[axis] == expected)) return false;
    expected = expected * sizes[axis];
  }
  return true;
}

/// Whether a batch of products is one product with more rows: the rows of all left-hand sides are contiguous, and the
/// right-hand side is common to all. Strides may include those of the last two axes.
template <class Size>
bool is_one_product(const std::vector<Size>& batch, const std::vector<Size>& a_strides,
                    const std::vector<Size>& b_strides, const Size& a_row, const Size& rows) {
  for (std::size_t axis = 0; axis < batch.size(); ++axis)
    if (!(batch[axis] == Size(1)) && !(b_strides[axis] == Size(0))) return false;
  return is_row_major(batch, a_strides, Size(a_row * rows));
}

/// The axes of its domain that a kernel names individually, in a position or a mask. They cannot be merged.
inline std::vector<bool> named_axes(const KernelSpec& kernel) {
  std::vector<bool> named(kernel.domain.size(), false);
  for (const Instruction& instruction : kernel.body)
    if (instruction.kind == Instruction::Kind::position) named[static_cast<std::size_t>(instruction.index)] = true;
  for (const Load& load : kernel.loads)
    for (const Mask& mask : load.masks) named[static_cast<std::size_t>(mask.axis)] = true;
  return named;
}

/// Whether axes of a kernel's domain can be merged: neither is named, and every load and store steps through both as
/// through one axis.
template <class Size>
class AxisMerger {
 public:
  /// `strides`: of each load and store.
  AxisMerger(const KernelSpec& kernel, std::vector<std::vector<Size>> strides)
      : named_(named_axes(kernel)), strides_(std::move(strides)) {}

  bool can_merge(std::size_t outer, std::size_t inner, const Size& inner_size) const {
    return !named_[outer] && !named_[inner] &&
           std::all_of(strides_.begin(), strides_.end(),
                       [&](const std::vector<Size>& strides) { return strides[outer] == strides[inner] * inner_size; });
  }

 private:
  std::vector<bool> named_;
  std::vector<std::vector<Size>> strides_;
};

}  // namespace jerboa::detail
