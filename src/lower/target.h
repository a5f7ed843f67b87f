#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The number of bindings that a buffer of this size needs: a buffer above the limit is bound in segments.
int binding_count(std::int64_t bytes, const Target& target);

/// No buffer is larger: sums of a few sizes and offsets stay far below 64-bit overflow.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 40;

/// The bytes of a tensor, at its symbols' upper bounds. Throws ShapeError if they overflow 64 bits.
std::int64_t bytes_of(const TensorType& type);

}  // namespace jerboa::detail
