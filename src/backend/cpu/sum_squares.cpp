#include "backend/cpu/sum_squares.h"

#include <algorithm>
#include <array>

#include "base/integers.h"

namespace jerboa::cpu {
namespace {

// Several accumulators, so that the compiler can vectorise; each sums few enough values for f32 to be accurate enough.
float sum_of_block(const float* x, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  std::array<float, lanes> totals{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      totals[static_cast<std::size_t>(lane)] += x[i + lane] * x[i + lane];
  for (; i < count; ++i) totals[0] += x[i] * x[i];
  float total = 0;
  for (const float part : totals) total += part;
  return total;
}

}  // namespace

float sum_squares(const std::vector<Floats>& tensors, ThreadPool& pool) {
  constexpr std::int64_t block = 4096;
  std::vector<Floats> blocks;
  for (const Floats& tensor : tensors)
    for (std::int64_t first = 0; first < tensor.count; first += block)
      blocks.push_back({tensor.data + first, std::min(block, tensor.count - first)});
  std::vector<float> sums(blocks.size());
  constexpr std::size_t at_once = 16;  // blocks of one task
  pool.run(detail::divide_up(std::ssize(blocks), at_once), [&](std::int64_t task, int) {
    const std::size_t first = static_cast<std::size_t>(task) * at_once;
    for (std::size_t i = first; i < std::min(first + at_once, blocks.size()); ++i)
      sums[i] = sum_of_block(blocks[i].data, blocks[i].count);
  });
  double total = 0;
  for (const float sum : sums) total += sum;
  return static_cast<float>(total);
}

}  // namespace jerboa::cpu
