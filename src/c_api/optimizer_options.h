#pragma once

#include <jerboa/transform/optimizer.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// An optimizer that is described as jerboa/c_api/graph.h says.
Optimizer optimizer_of(const nlohmann::json& json);

}  // namespace jerboa::c_api
