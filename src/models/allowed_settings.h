#pragma once

#include <string_view>

#include <jerboa/models/config.h>

namespace jerboa::models {

/// For settings that would change a model in a way that its family does not implement: `json` is an object with the one
/// value that each of them may have, if the config has it at all. FileError for any other.
void allow_only(const Config& config, std::string_view json);

}  // namespace jerboa::models
