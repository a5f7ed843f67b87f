#include "backend/cpu/scan.h"

#include <algorithm>
#include <array>

namespace jerboa::cpu {
namespace {

// Sum is wider than T, or wraps where T would overflow.
template <class T, class Sum>
void cumsum(const Lines& lines, const T* x, T* y, bool reverse, ThreadPool& pool) {
  constexpr std::int64_t block = 64;  // adjacent lines per task
  const std::int64_t blocks = (lines.inner + block - 1) / block;
  pool.run(lines.outer * blocks, [&](std::int64_t task, int) {
    const std::int64_t first = task % blocks * block, count = std::min(block, lines.inner - first);
    const std::int64_t start = task / blocks * lines.length * lines.inner + first;
    std::array<Sum, block> totals{};
    for (std::int64_t p = 0; p < lines.length; ++p) {
      const std::int64_t at = start + (reverse ? lines.length - 1 - p : p) * lines.inner;
      for (std::int64_t i = 0; i < count; ++i) {
        totals[i] += static_cast<Sum>(x[at + i]);
        y[at + i] = static_cast<T>(totals[i]);
      }
    }
  });
}

}  // namespace

void run_cumsum(const Lines& lines, const float* x, float* y, bool reverse, ThreadPool& pool) {
  cumsum<float, double>(lines, x, y, reverse, pool);
}

void run_cumsum(const Lines& lines, const std::int32_t* x, std::int32_t* y, bool reverse, ThreadPool& pool) {
  cumsum<std::int32_t, std::uint32_t>(lines, x, y, reverse, pool);
}

}  // namespace jerboa::cpu
