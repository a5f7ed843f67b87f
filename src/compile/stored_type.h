#pragma once

#include <jerboa/base/dtype.h>
#include <jerboa/io/tensor_view.h>

namespace jerboa::detail {

/// The safetensors name of a type. Throws UsageError for types that the format does not have.
StoredType stored_type(DType dtype);

}  // namespace jerboa::detail
