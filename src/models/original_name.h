#pragma once

#include <string>

#include <jerboa/models/quantise.h>

namespace jerboa::models {

/// The name that a parameter has in a checkpoint: a quantised one is computed from the original weight.
inline std::string original_name(const std::string& param) {
  return param.ends_with(quantised_suffix) ? param.substr(0, param.size() - quantised_suffix.size()) : param;
}

}  // namespace jerboa::models
