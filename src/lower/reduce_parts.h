#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The index of the reduction in a reduce kernel's body.
int reduction_of(const KernelSpec& kernel);

/// A reduce kernel split in two: the computation per element before the reduction, and per result after it.
struct ReduceParts {
  KernelSpec elements;  ///< over the same domain, without stores
  int value = 0;        ///< the instruction of `elements` that is reduced
  KernelSpec results;   ///< over the kept axes; the reduced value is the `product` instruction
};
ReduceParts split_reduce(const KernelSpec& kernel);

/// Whether the reduced operand is contiguous along the kept axes.
bool runs_along_kept(const KernelSpec& elements);

}  // namespace jerboa::detail
