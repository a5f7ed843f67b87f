#pragma once

#include <cstdint>

namespace jerboa::detail {

/// How many pieces of a size cover a length; 0 for a length that is not positive.
constexpr std::int64_t divide_up(std::int64_t length, std::int64_t size) {
  return length <= 0 ? 0 : (length + size - 1) / size;
}

/// The next multiple of a size.
constexpr std::int64_t round_up(std::int64_t length, std::int64_t size) { return divide_up(length, size) * size; }

/// The bytes of the words of 4 bytes that cover some: a GPU copies and binds no less.
constexpr std::int64_t whole_words(std::int64_t bytes) { return round_up(bytes, 4); }

}  // namespace jerboa::detail
