#pragma once

#include <optional>

#include <jerboa/base/dtype.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// The option "weights"; empty if absent.
std::optional<DType> weights_of(Fields& options);
/// The option "cache".
std::optional<DType> cache_of(Fields& options);

}  // namespace jerboa::c_api
