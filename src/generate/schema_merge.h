#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace jerboa {

/// A schema that asks for all that two ask for. Throws ConstraintError where one cannot say that in a single schema.
nlohmann::ordered_json merge_schemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                                     const std::string& path);

/// True where it is certain that no value is valid by both: different types, no constant in common, or a required
/// property that tells them apart. `resolve` follows a $ref.
bool are_disjoint(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b,
                  const std::function<nlohmann::ordered_json(const nlohmann::ordered_json&)>& resolve);

/// The types a schema names, or none where it names none.
std::vector<std::string> types_of(const nlohmann::ordered_json& schema);
std::string type_of(const nlohmann::ordered_json& value);

}  // namespace jerboa
