#pragma once

#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// Indices along an axis: `nearest` clamps those out of range, and `in_range` says whether each was in range. Updates
/// that a scatter drops get no gradient.
struct CheckedIndices {
  Tensor nearest, in_range;
};
CheckedIndices checked(const Tensor& indices, const Dim& size);

}  // namespace jerboa::detail
