#pragma once

#include <map>
#include <string>

#include <jerboa/lower/program_file.h>
#include <jerboa/runtime/session.h>

namespace jerboa::detail {

/// Throws UsageError that names the entry and the input unless each rate is finite and as large as it must be.
void check_rates(const std::string& entry, const std::map<std::string, Rate>& rates, const TensorMap& inputs);

}  // namespace jerboa::detail
