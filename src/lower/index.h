#pragma once

#include <cstddef>

namespace jerboa::detail {

/// An id or another number that is not negative, as the index of a container.
constexpr std::size_t index(int number) { return static_cast<std::size_t>(number); }

}  // namespace jerboa::detail
