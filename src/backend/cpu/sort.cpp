#include "backend/cpu/sort.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/scratch.h"
#include "base/integers.h"

// A value and its position are packed into one integer: the value, as order-preserving bits, above the position.
// Sorting these numbers is stable whatever the algorithm.
namespace jerboa::cpu {
namespace {

constexpr std::uint32_t sign_bit = 0x80000000U;

// NaN, whatever its sign and payload, sorts above infinity; all NaNs are equal.
std::uint32_t ordered_bits(float value) {
  if (std::isnan(value)) return 0xFFFFFFFFU;
  const auto bits = std::bit_cast<std::uint32_t>(value == 0 ? 0.0F : value);  // -0 equals 0
  return (bits & sign_bit) != 0 ? ~bits : bits | sign_bit;
}

std::uint32_t ordered_bits(std::int32_t value) { return static_cast<std::uint32_t>(value) ^ sign_bit; }

template <class T>
std::uint64_t ranked(T value, std::int64_t place, bool descending) {
  const std::uint32_t bits = ordered_bits(value);
  return static_cast<std::uint64_t>(descending ? ~bits : bits) << 32U | static_cast<std::uint64_t>(place);
}

std::int32_t place_of(std::uint64_t rank) { return static_cast<std::int32_t>(rank & 0xFFFFFFFFU); }

// Calls line(x, y) for each line: where it begins in the input, and in an output of another length.
template <class Line>
void for_each_line(const Lines& lines, std::int64_t out_length, ThreadPool& pool, Line line) {
  const std::int64_t lines_per_task = std::max<std::int64_t>(4096 / std::max<std::int64_t>(lines.length, 1), 1);
  const std::int64_t count = lines.outer * lines.inner;
  pool.run(detail::divide_up(count, lines_per_task), [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * lines_per_task, count);
    for (std::int64_t i = task * lines_per_task; i < end; ++i) {
      const std::int64_t outer = i / lines.inner, inner = i % lines.inner;
      line(outer * lines.length * lines.inner + inner, outer * out_length * lines.inner + inner);
    }
  });
}

std::uint64_t* scratch_ranks(std::int64_t count) {
  static thread_local Scratch<std::uint64_t> scratch;
  return scratch.get(count);
}

template <class T>
void top_k(const Lines& lines, const T* x, std::int64_t k, T* values, std::int32_t* indices, ThreadPool& pool) {
  for_each_line(lines, k, pool, [&](std::int64_t from, std::int64_t to) {
    const auto rank = [&](std::int64_t p) { return ranked(x[from + p * lines.inner], p, true); };
    // A heap of the k best so far: most elements are only compared with its worst.
    std::uint64_t* best = scratch_ranks(k);
    for (std::int64_t p = 0; p < k; ++p) best[p] = rank(p);
    std::make_heap(best, best + k);
    for (std::int64_t p = k; p < lines.length && k > 0; ++p) {
      const std::uint64_t candidate = rank(p);
      if (candidate >= best[0]) continue;
      std::pop_heap(best, best + k);
      best[k - 1] = candidate;
      std::push_heap(best, best + k);
    }
    std::sort_heap(best, best + k);
    for (std::int64_t p = 0; p < k; ++p) {
      const std::int32_t place = place_of(best[p]);
      values[to + p * lines.inner] = x[from + place * lines.inner];
      indices[to + p * lines.inner] = place;
    }
  });
}

template <class T>
void argsort(const Lines& lines, const T* x, bool descending, std::int32_t* indices, ThreadPool& pool) {
  for_each_line(lines, lines.length, pool, [&](std::int64_t from, std::int64_t to) {
    std::uint64_t* ranks = scratch_ranks(lines.length);
    for (std::int64_t p = 0; p < lines.length; ++p) ranks[p] = ranked(x[from + p * lines.inner], p, descending);
    std::sort(ranks, ranks + lines.length);
    for (std::int64_t p = 0; p < lines.length; ++p) indices[to + p * lines.inner] = place_of(ranks[p]);
  });
}

}  // namespace

void run_top_k(const Lines& lines, const float* x, std::int64_t k, float* values, std::int32_t* indices,
               ThreadPool& pool) {
  top_k(lines, x, k, values, indices, pool);
}

void run_top_k(const Lines& lines, const std::int32_t* x, std::int64_t k, std::int32_t* values, std::int32_t* indices,
               ThreadPool& pool) {
  top_k(lines, x, k, values, indices, pool);
}

void run_argsort(const Lines& lines, const float* x, bool descending, std::int32_t* indices, ThreadPool& pool) {
  argsort(lines, x, descending, indices, pool);
}

void run_argsort(const Lines& lines, const std::int32_t* x, bool descending, std::int32_t* indices, ThreadPool& pool) {
  argsort(lines, x, descending, indices, pool);
}

}  // namespace jerboa::cpu
