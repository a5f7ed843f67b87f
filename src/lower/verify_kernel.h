#pragma once

#include <string>

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// How many bytes from its start a buffer must have for all elements of a tensor that stands so in it. Throws
/// GraphError where one would stand before the start, or so far that 64 bits do not hold its place. `what` is for the
/// message.
std::int64_t bytes_reached(const std::string& what, DType dtype, const Dim& offset, const std::vector<Dim>& strides,
                           const Shape& shape, const SymbolValues& symbols);

/// Proves that a kernel is well formed: operands are defined before they are used and of the right number and types,
/// ops and attributes fit the kind of the kernel, indices fit their types. Gives for each binding how many bytes the
/// kernel reaches at most. Throws GraphError that begins with `what`.
std::vector<std::int64_t> verify_kernel(const KernelSpec& kernel, const std::string& what, const SymbolValues& symbols);

}  // namespace jerboa::detail
