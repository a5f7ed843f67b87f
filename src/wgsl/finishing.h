#pragma once

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// Whether a loop takes elements of a memory one by one, in the order in which they are stored there.
bool takes_elements(const KernelSpec& loop, int memory);

/// Whether a convolution is of one token for each row of a product of this domain, or for its first row, and changes
/// its state in place: then an element is all that it reads of them for each of its results.
bool convolves_elements(const KernelSpec& convolution, const Shape& domain);

/// The body of a function that does with `value`, number `element` of a memory of this type, what such a loop or
/// convolution does.
void write_finished_element(Shader& shader, const KernelSpec& kernel, int memory, DType dtype);

}  // namespace jerboa::wgsl
