#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// How many bindings a buffer of this size takes: one over the limit is bound in segments.
int binding_count(std::int64_t bytes, const Target& target);

/// The bytes of a tensor, at its symbols' bounds.
std::int64_t bytes_of(const TensorType& type);

}  // namespace jerboa::detail
