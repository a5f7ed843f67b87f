#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace jerboa {

/// Two of the schemas that may both accept the same value, or nothing if no two can: they have different types, no
/// constant in common, or a required property whose constants distinguish them. `resolve` follows a $ref. Takes linear
/// time unless most of the schemas lack a property that distinguishes the others; throws ConstraintError if that would
/// take too long.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    const nlohmann::ordered_json& schemas,
    const std::function<nlohmann::ordered_json(const nlohmann::ordered_json&)>& resolve);

}  // namespace jerboa
