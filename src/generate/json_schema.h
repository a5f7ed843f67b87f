#pragma once

#include <jerboa/generate/constraint.h>

#include "generate/grammar.h"

namespace jerboa {

/// Adds a rule for the JSON texts that are valid under a schema, or under the part of it at `place`, a JSON pointer.
/// Throws ConstraintError.
Grammar::Rule add_json_schema(Grammar& grammar, const JsonValue& schema, const JsonSchemaOptions& options,
                              const std::string& place = "");

}  // namespace jerboa
