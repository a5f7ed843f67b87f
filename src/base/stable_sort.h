#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace jerboa::detail {

/// The numbers below `count` in the order of `less`; of equal ones the smaller first. One function for all sorts,
/// because each instantiation of std::stable_sort adds some 3 kB to jerboa.wasm.
std::vector<std::size_t> stable_order(std::size_t count, const std::function<bool(std::size_t, std::size_t)>& less);

/// Sorts values; equal ones stay in their order.
template <class T, class Less>
void stable_sort(std::vector<T>& values, const Less& less) {
  std::vector<T> sorted;
  sorted.reserve(values.size());
  for (const std::size_t place :
       stable_order(values.size(), [&](std::size_t a, std::size_t b) { return less(values[a], values[b]); }))
    sorted.push_back(std::move(values[place]));
  values = std::move(sorted);
}

}  // namespace jerboa::detail
