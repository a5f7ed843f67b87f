#include "base/stable_sort.h"

#include <algorithm>
#include <numeric>

namespace jerboa::detail {

std::vector<std::size_t> stable_order(std::size_t count, const std::function<bool(std::size_t, std::size_t)>& less) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return less(a, b); });
  return order;
}

}  // namespace jerboa::detail
