#include "transform/checked_indices.h"

#include <jerboa/ops/ops.h>

namespace jerboa::detail {

CheckedIndices checked(const Tensor& indices, const Dim& size) {
  // A symbolic size is only known at run time: count ones.
  const Tensor count = size.is_constant() ? full({}, static_cast<double>(size.value()), indices.dtype())
                                          : sum(full({size}, 1, indices.dtype()));
  const Tensor not_negative = indices >= 0;
  const Tensor below = indices < count;
  const Tensor nearest = maximum(minimum(indices, count - 1), 0);
  return {nearest, logical_and(not_negative, below)};
}

}  // namespace jerboa::detail
