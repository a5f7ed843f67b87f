#include "memory/vector_index.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include <jerboa/base/error.h>

#include "base/integers.h"
#include "memory/dot_products.h"

namespace jerboa::memory {
namespace {

constexpr std::int64_t rows_per_task = 2048;

std::int64_t padded(std::int64_t dimensions) { return detail::round_up(dimensions, dot_product_multiple); }

}  // namespace

VectorIndex::VectorIndex(std::int64_t dimensions, int threads)
    : dimensions_(dimensions), stride_(padded(dimensions)), pool_(threads) {}

void VectorIndex::reserve(std::int64_t count) {
  ids_.reserve(static_cast<std::size_t>(count));
  values_.reserve(static_cast<std::size_t>(count * stride_));
}

void VectorIndex::check_size(std::size_t size) const {
  if (static_cast<std::int64_t>(size) != dimensions_)
    throw UsageError(fmt::format("the vector has {} dimensions, but the index {}", size, dimensions_));
}

void VectorIndex::add(std::int64_t id, std::span<const float> vector) {
  check_size(vector.size());
  ids_.push_back(id);
  values_.insert(values_.end(), vector.begin(), vector.end());
  values_.resize(ids_.size() * static_cast<std::size_t>(stride_));
}

std::vector<Neighbour> VectorIndex::nearest(std::span<const float> query, std::int64_t count) {
  check_size(query.size());
  std::vector<float> wanted(query.begin(), query.end());
  wanted.resize(static_cast<std::size_t>(stride_));
  std::vector<float> scores(ids_.size());
  const std::int64_t tasks = detail::divide_up(size(), rows_per_task);
  pool_.run(tasks, [&](std::int64_t number, int) {
    const std::int64_t begin = number * rows_per_task, rows = std::min(rows_per_task, size() - begin);
    dot_products(values_.data() + begin * stride_, rows, stride_, wanted.data(), scores.data() + begin);
  });
  std::vector<std::size_t> order(ids_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto best = order.begin() + std::min(std::max<std::int64_t>(count, 0), size());
  std::partial_sort(order.begin(), best, order.end(), [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  std::vector<Neighbour> found;
  for (auto row = order.begin(); row != best; ++row) found.push_back({ids_[*row], scores[*row]});
  return found;
}

}  // namespace jerboa::memory
