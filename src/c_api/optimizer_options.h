#pragma once

#include <jerboa/transform/optimizer.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// The optimizer described as jerboa/c_api/graph.h documents.
Optimizer optimizer_of(const nlohmann::json& json);

}  // namespace jerboa::c_api
