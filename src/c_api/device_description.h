#pragma once

#include <jerboa/lower/program.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// The Target for a device, described as jerboa_c.h documents. Ignores limits, features and facts that the compiler
/// does not use, because every browser version reports more of them.
Target target_of(const nlohmann::json& device);

}  // namespace jerboa::c_api
