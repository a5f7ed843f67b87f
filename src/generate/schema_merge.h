#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace jerboa {

/// A schema that asks for all that two ask for. Throws ConstraintError where one cannot say that in a single schema.
nlohmann::ordered_json merge_schemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                                     const std::string& path);

/// The types a schema names, or none where it names none.
std::vector<std::string> types_of(const nlohmann::ordered_json& schema);
std::string type_of(const nlohmann::ordered_json& value);

}  // namespace jerboa
