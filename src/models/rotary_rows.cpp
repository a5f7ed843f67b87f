#include "models/rotary_rows.h"

#include <cstring>

namespace jerboa::models {

void halves_of_pairs(std::span<const std::byte> from, std::span<std::byte> to, std::int64_t heads,
                     std::int64_t head_size) {
  const std::size_t row = from.size() / static_cast<std::size_t>(heads * head_size);
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < head_size; ++i) {
      const auto pair = static_cast<std::size_t>(head * head_size + i);
      const auto half = static_cast<std::size_t>(head * head_size + i / 2 + i % 2 * head_size / 2);
      std::memcpy(to.data() + half * row, from.data() + pair * row, row);
    }
}

}  // namespace jerboa::models
