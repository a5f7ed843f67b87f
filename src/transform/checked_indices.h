#pragma once

#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// Indices along an axis of a size: those out of range moved into it, and whether each was in range. What a scatter
/// drops gets no gradient.
struct CheckedIndices {
  Tensor nearest, in_range;
};
CheckedIndices checked(const Tensor& indices, const Dim& size);

}  // namespace jerboa::detail
