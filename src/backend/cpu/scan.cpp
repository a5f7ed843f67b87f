#include "backend/cpu/scan.h"

#include <algorithm>
#include <array>

#include "base/integers.h"

namespace jerboa::cpu {
namespace {

// Sum is wider than T, or wraps where T would overflow.
template <class T, class Sum>
void cumsum(const Lines& lines, const T* x, T* y, bool reverse, ThreadPool& pool) {
  constexpr std::int64_t block = 64;  // adjacent lines per task
  const std::int64_t blocks = detail::divide_up(lines.inner, block);
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

template <class T>
void cummax(const Lines& lines, const T* x, T* y, std::int32_t* indices, bool reverse, ThreadPool& pool) {
  pool.run(lines.outer, [&](std::int64_t outer, int) {
    const std::int64_t start = outer * lines.length * lines.inner;
    for (std::int64_t step = 0; step < lines.length; ++step) {
      const std::int64_t p = reverse ? lines.length - 1 - step : step, at = start + p * lines.inner;
      const std::int64_t last = reverse ? at + lines.inner : at - lines.inner;
      for (std::int64_t i = 0; i < lines.inner; ++i) {
        // The maximum stays unless the new number exceeds it or is NaN; a NaN always stays.
        const bool stays = step > 0 && (y[last + i] != y[last + i] || x[at + i] <= y[last + i]);
        y[at + i] = stays ? y[last + i] : x[at + i];
        indices[at + i] = stays ? indices[last + i] : static_cast<std::int32_t>(p);
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

void run_cummax(const Lines& lines, const float* x, float* y, std::int32_t* indices, bool reverse, ThreadPool& pool) {
  cummax(lines, x, y, indices, reverse, pool);
}

void run_cummax(const Lines& lines, const std::int32_t* x, std::int32_t* y, std::int32_t* indices, bool reverse,
                ThreadPool& pool) {
  cummax(lines, x, y, indices, reverse, pool);
}

void run_cummax(const Lines& lines, const std::uint32_t* x, std::uint32_t* y, std::int32_t* indices, bool reverse,
                ThreadPool& pool) {
  cummax(lines, x, y, indices, reverse, pool);
}

}  // namespace jerboa::cpu
