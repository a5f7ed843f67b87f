#pragma once

#include <jerboa/lower/program.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// The Target of a device that is described as jerboa_c.h says. Limits, features and facts that the compiler does not
/// use are ignored, because browsers report more of them with every version.
Target target_of(const nlohmann::json& device);

}  // namespace jerboa::c_api
