#pragma once

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

/// Whether a product with int8 or int4 weights can be computed by threads that unpack a group of weights at a time: the
/// weights lie group by group along the inner dimension, and the rows can be read in fours.
bool suits_quantised_blocks(const KernelWriter& writer, const MatmulProblem& problem);
void write_quantised_blocks(KernelWriter& writer, const MatmulProblem& problem);

}  // namespace jerboa::wgsl
