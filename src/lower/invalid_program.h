#pragma once

#include <cstddef>
#include <fmt/format.h>
#include <utility>

#include <jerboa/base/error.h>

// Helpers of the verifiers of a program.
namespace jerboa::detail {

template <class... Args>
[[noreturn]] void fail_program(fmt::format_string<Args...> text, Args&&... args) {
  throw GraphError("invalid program: " + fmt::format(text, std::forward<Args>(args)...));
}

inline bool is_index_of(int number, std::size_t size) { return number >= 0 && static_cast<std::size_t>(number) < size; }

}  // namespace jerboa::detail
