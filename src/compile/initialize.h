#pragma once

#include <cstdint>
#include <string>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// The initial values of a parameter or state: a function of the seed and the name alone, so that adding a layer does
/// not change the others.
HostTensor initial_values(const std::string& name, DType dtype, const Sizes& sizes, const Init& init,
                          std::uint64_t seed);

}  // namespace jerboa::detail
