#pragma once

#include <string_view>

#include "generate/grammar.h"

namespace jerboa {

/// Adds what matches the pattern between two states. `search`: the match may stand anywhere in the text, as JSON
/// Schema's `pattern` means it; else it is the whole text. Throws ConstraintError that names the pattern.
void add_regex(Grammar& grammar, State from, State to, std::string_view pattern, Encoding encoding, bool search);

}  // namespace jerboa
