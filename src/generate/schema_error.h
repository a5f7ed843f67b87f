#pragma once

#include <string>
#include <string_view>

#include <jerboa/generate/constraint.h>

#include "base/parse_json.h"

namespace jerboa {

/// A name or a value from a schema, of any length, shortened for an error.
inline std::string shown(std::string_view text) { return shortened(text, 120); }

/// Both arguments may quote a schema, whose texts may have any content.
[[noreturn]] inline void refuse_schema(std::string_view path, std::string_view what) {
  constexpr std::size_t longest_path = 200, longest_text = 500;
  throw ConstraintError(printable_line(shortened(path, longest_path)) + ": " +
                        printable_line(shortened(what, longest_text)));
}

}  // namespace jerboa
