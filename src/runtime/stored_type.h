#pragma once

#include <jerboa/base/dtype.h>
#include <jerboa/io/tensor_view.h>

namespace jerboa::detail {

/// How a safetensors file calls a type. Throws UsageError for those that it cannot hold.
StoredType stored_type(DType dtype);

}  // namespace jerboa::detail
