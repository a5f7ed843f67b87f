#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The instruction of a reduce kernel that is its reduction.
int reduction_of(const KernelSpec& kernel);

/// A reduce kernel in two: what is computed of each element before it is reduced, and of each result after.
struct ReduceParts {
  KernelSpec elements;  ///< over the same domain, without stores
  int value = 0;        ///< the instruction of `elements` that is reduced
  KernelSpec results;   ///< over the axes that are kept; the reduction stands there as the product
};
ReduceParts split_reduce(const KernelSpec& kernel);

/// Whether the memory of what is reduced runs along the axes that are kept.
bool runs_along_kept(const KernelSpec& elements);

}  // namespace jerboa::detail
