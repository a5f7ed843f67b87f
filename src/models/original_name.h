#pragma once

#include <string>

#include <jerboa/models/quantise.h>

namespace jerboa::models {

/// The name of a parameter's tensor in an unquantised checkpoint: without the suffix of quantised weights.
inline std::string original_name(const std::string& param) {
  return param.ends_with(quantised_suffix) ? param.substr(0, param.size() - quantised_suffix.size()) : param;
}

}  // namespace jerboa::models
