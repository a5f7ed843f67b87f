#pragma once

#include <string_view>

#include "generate/grammar.h"

namespace jerboa {

/// Adds the pattern between two states. `search`: the match may be anywhere in the text, as in JSON Schema's `pattern`;
/// otherwise it must be the whole text. Throws ConstraintError that names the pattern.
void add_regex(Grammar& grammar, State from, State to, std::string_view pattern, Encoding encoding, bool search);

}  // namespace jerboa
