#pragma once

#include <string>

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The size in bytes that a buffer needs to hold all elements of a tensor with this layout. Throws GraphError if an
/// element would lie before the start, or its offset overflows 64 bits. `what` is for the message.
std::int64_t bytes_reached(const std::string& what, DType dtype, const Dim& offset, const std::vector<Dim>& strides,
                           const Shape& shape, const SymbolValues& symbols);

/// Whether converting the number to the type is defined: any number for floats, those within the range of the others.
bool can_hold(DType dtype, double value);

/// Checks that a kernel is well formed: operands are defined before they are used and have the right number and types,
/// ops and attributes fit the kind of the kernel, indices fit their types. Returns for each binding the furthest byte
/// that the kernel accesses. Throws GraphError that begins with `what`.
std::vector<std::int64_t> verify_kernel(const KernelSpec& kernel, const std::string& what, const SymbolValues& symbols);

}  // namespace jerboa::detail
