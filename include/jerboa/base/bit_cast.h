#pragma once

#include <type_traits>

namespace jerboa {

/// std::bit_cast, which the standard library of Debian's emscripten lacks.
template <typename To, typename From>
constexpr To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, from);
}

}  // namespace jerboa
