#pragma once

#include <string_view>

#include <jerboa/models/config.h>

namespace jerboa::models {

/// For settings that would change a model in a way that its family does not implement. `json` is an object with the one
/// supported value of each; throws FileError if the config has another.
void allow_only(const Config& config, std::string_view json);

}  // namespace jerboa::models
