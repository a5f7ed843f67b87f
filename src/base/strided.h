#pragma once

#include <cstdint>
#include <vector>

namespace jerboa::detail {

/// Calls visit(number of the element, its offset in memory) for a strided array, in row-major order.
template <class Visit>
void for_each_place(std::int64_t offset, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides, Visit visit) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<std::int64_t> index(sizes.size(), 0);
  std::int64_t place = offset;
  for (std::int64_t number = 0; number < count; ++number) {
    visit(number, place);
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < sizes[axis]) break;
      place -= strides[axis] * sizes[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace jerboa::detail
