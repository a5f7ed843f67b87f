#pragma once

#include "wgsl/part_uses.h"

namespace jerboa::wgsl {

/// Recurrences compute the kernels around them. Convolutions, linear attention of few tokens and attention of few
/// queries compute the element-wise loops after them; linear attention also its gates and the norms of its queries,
/// keys and results. A convolution of one token per sequence is computed by the product that gives its input. A layer
/// of a recurrent decoder that gets one token thus is a product, linear attention, and a product.
void fold_recurrences(const Program& program, const Target& target, PartUses& uses);

}  // namespace jerboa::wgsl
