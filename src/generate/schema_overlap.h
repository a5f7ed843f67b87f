#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generate/schema_budget.h"

namespace jerboa {

/// Two of the schemas that may both accept the same value, or none if no two can: they have different types, no
/// constant in common, or a required property whose constants distinguish them. `resolve` follows a $ref. Takes linear
/// time if a property distinguishes most of the schemas. Throws ConstraintError with `path`, the location of the
/// schemas, if comparing them exceeds the budget.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    const nlohmann::ordered_json& schemas,
    const std::function<nlohmann::ordered_json(const nlohmann::ordered_json&)>& resolve, SchemaBudget& budget,
    const std::string& path);

}  // namespace jerboa
