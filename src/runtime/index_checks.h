#pragma once

#include <vector>

#include <jerboa/lower/program_file.h>
#include <jerboa/runtime/session.h>

namespace jerboa::detail {

/// Throws UsageError that names the input, the value, the bound and the user's line.
void check_input_indices(const std::vector<InputIndices>& indices, const TensorMap& inputs,
                         const SymbolValues& symbols);

}  // namespace jerboa::detail
