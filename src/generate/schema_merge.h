#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace jerboa {

/// A schema equivalent to the conjunction of two. Throws ConstraintError if no single schema can express it.
nlohmann::ordered_json merge_schemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                                     const std::string& path);

/// The types a schema names, possibly none.
std::vector<std::string> types_of(const nlohmann::ordered_json& schema);
std::string type_of(const nlohmann::ordered_json& value);

}  // namespace jerboa
