#pragma once

#include "text/json_view.h"

namespace jerboa {

/// Sequences may hold sequences; real files go two deep, and the stack must not depend on the file.
inline constexpr int max_nesting = 16;

inline void check_nesting(const JsonView& json, int depth) {
  if (depth > max_nesting) json.fail("sequences are nested too deeply");
}

}  // namespace jerboa
