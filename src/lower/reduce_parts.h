#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The instruction of a reduce kernel that is its reduction.
int reduction_of(const KernelSpec& kernel);

/// A reduce kernel split in two: what is computed per element before the reduction, and per result after it.
struct ReduceParts {
  KernelSpec elements;  ///< over the same domain, without stores
  int value = 0;        ///< the instruction of `elements` that is reduced
  KernelSpec results;   ///< over the kept axes; the reduced value enters as the `product` instruction
};
ReduceParts split_reduce(const KernelSpec& kernel);

/// Whether the reduced operand is contiguous along the kept axes.
bool runs_along_kept(const KernelSpec& elements);

}  // namespace jerboa::detail
