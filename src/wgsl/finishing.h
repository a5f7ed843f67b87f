#pragma once

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// Whether a loop reads elements of a memory one by one, in the order in which they are stored there.
bool takes_elements(const KernelSpec& loop, int memory);

/// Whether a convolution processes one token for each row of a product of this domain, or for its first row, and
/// updates its state in place: each of its results then needs only one element of the product.
bool convolves_elements(const KernelSpec& convolution, const Shape& domain);

/// Writes the body of a function that applies such a loop or convolution to `value`, element number `element` of a
/// memory of this type.
void write_finished_element(Shader& shader, const KernelSpec& kernel, int memory, DType dtype);

}  // namespace jerboa::wgsl
