#pragma once

#include <set>
#include <string>
#include <string_view>

#include "server/fields.h"

// For formats that write the values of arguments as plain text: the tool's schema gives their types.
namespace jerboa::server {

/// Names of JSON types: "string", "integer", …; empty: any.
using ValueTypes = std::set<std::string, std::less<>>;

/// The types that a schema allows. References point into `root`.
ValueTypes value_types(const Json& schema, const Json& root);

/// The JSON of a value that was written as text: a string where no other type is allowed or fits.
std::string value_json(const std::string& text, const ValueTypes& types);

/// Escapes a part of a JSON string, without quotes.
std::string escaped_part(std::string_view text);

}  // namespace jerboa::server
