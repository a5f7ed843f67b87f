#pragma once

#include <string>

namespace jerboa {

/// The content of web/src/graph/ops.ts: a typed function for every op of the table that is an ordinary function of
/// tensors.
std::string typescript_ops();

}  // namespace jerboa
