#pragma once

#include <jerboa/backend/backend.h>
#include <jerboa/transform/checks.h>

namespace jerboa::detail {

/// Waits for a run with checks and throws if a check failed: NotFiniteError that names the first tensor that is
/// not finite, its op, its kernel and the user's line; UsageError for indices out of range.
void throw_failed_checks(const RunChecks& checks, const Executable& executable, RunResults& results,
                         const SymbolValues& symbols);

}  // namespace jerboa::detail
