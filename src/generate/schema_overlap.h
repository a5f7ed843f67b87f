#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace jerboa {

/// Two of the schemas that a value may be valid by both of, or nothing where it is certain that there are none:
/// schemas of different types, without a constant in common, or with a required property whose constants tell them
/// apart. `resolve` follows a $ref. Takes time in proportion to the schemas, unless most of them lack a property that
/// others are told apart by; throws ConstraintError where that would take long.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    const nlohmann::ordered_json& schemas,
    const std::function<nlohmann::ordered_json(const nlohmann::ordered_json&)>& resolve);

}  // namespace jerboa
