#pragma once

#include <cstdint>

namespace jerboa::detail {

/// The number of pieces of a size that cover a length; 0 for a length that is not positive.
constexpr std::int64_t divide_up(std::int64_t length, std::int64_t size) {
  return length <= 0 ? 0 : (length + size - 1) / size;
}

/// The next multiple of a size.
constexpr std::int64_t round_up(std::int64_t length, std::int64_t size) { return divide_up(length, size) * size; }

/// Bytes rounded up to whole 32-bit words: the smallest unit that a GPU copies and binds.
constexpr std::int64_t whole_words(std::int64_t bytes) { return round_up(bytes, 4); }

}  // namespace jerboa::detail
