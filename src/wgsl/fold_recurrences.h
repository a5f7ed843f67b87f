#pragma once

#include "wgsl/part_uses.h"

namespace jerboa::wgsl {

/// Recurrences compute what surrounds them: convolutions, linear attention of few tokens and attention of few queries
/// what follows them, element by element, and linear attention also its gates and the norms of its queries, keys and
/// results. A convolution of one token per sequence is computed by the product that gives its input. So a layer of a
/// recurrent decoder that is fed one token is a product, linear attention, and a product.
void fold_recurrences(const Program& program, const Target& target, PartUses& uses);

}  // namespace jerboa::wgsl
