#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace jerboa::models {

/// Transposes matrices [rows, columns] that are stored one after another.
inline void transpose_matrices(std::span<const float> from, std::int64_t row_count, std::int64_t column_count,
                               std::span<float> to) {
  const auto rows = static_cast<std::size_t>(row_count), columns = static_cast<std::size_t>(column_count);
  for (std::size_t first = 0; first < from.size(); first += rows * columns)
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0; column < columns; ++column)
        to[first + column * rows + row] = from[first + row * columns + column];
}

}  // namespace jerboa::models
