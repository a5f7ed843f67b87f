#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// Mixed precision multiplies weights of f32 and bf16 as f16, in which values beyond its range are infinite. Throws
/// UsageError that names the parameter if it is a matrix with such values.
void check_fits_halves(const Graph& graph, const std::string& param, std::span<const std::byte> bytes);

}  // namespace jerboa::detail
