#pragma once

#include "text/json_view.h"

namespace jerboa {

/// Sequences may contain sequences; real files nest two deep, and the file must not determine the stack depth.
inline constexpr int max_nesting = 16;

inline void check_nesting(const JsonView& json, int depth) {
  if (depth > max_nesting) json.fail("sequences are nested too deeply");
}

}  // namespace jerboa
