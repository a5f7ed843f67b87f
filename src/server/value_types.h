#pragma once

#include <set>
#include <string>
#include <string_view>

#include "server/fields.h"

// Formats in which the values of a call's arguments are plain text: what they stand for is in the tool's schema.
namespace jerboa::server {

/// Names of JSON types: "string", "integer", …; empty: any.
using ValueTypes = std::set<std::string, std::less<>>;

/// The types that a schema allows. `root` is the schema that its references point into.
ValueTypes value_types(const Json& schema, const Json& root);

/// The JSON of a value that is written as text: a string where nothing else is allowed or fits.
std::string value_json(const std::string& text, const ValueTypes& types);

/// A part of a JSON string, without quotes.
std::string escaped_part(std::string_view text);

}  // namespace jerboa::server
