#include "backend/cpu/linear_attention_chunk.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/matmul.h"

namespace jerboa::cpu {

// By bit pattern, without leaving early: a loop that compilers vectorise.
bool are_finite(const float* x, std::int64_t count) {
  constexpr std::uint32_t exponent = 0x7f800000u;
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    found |= static_cast<std::uint32_t>((bits & exponent) == exponent);
  }
  return found == 0;
}

void ChunkProducts::multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a,
                             const float* b, float* c, bool accumulate, float scale) {
  run_small_matmul({rows, columns, inner, a, inner, 1, b, columns, 1, c, columns, scale, accumulate}, scratch);
}

void ChunkProducts::multiply_transposed(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a,
                                        const float* b, float* c, bool accumulate, float scale) {
  run_small_matmul({rows, columns, inner, a, inner, 1, b, 1, inner, c, columns, scale, accumulate}, scratch);
}

void ChunkProducts::transposed_multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a,
                                        const float* b, float* c, bool accumulate, float scale) {
  run_small_matmul({rows, columns, inner, a, 1, rows, b, columns, 1, c, columns, scale, accumulate}, scratch);
}

void ChunkProducts::lower_multiply(std::int64_t rows, std::int64_t columns, const float* lower, const float* b,
                                   float* c) {
  multiply(rows, columns, rows, lower, b, c);
  // The last row has something of every row of b, so it tells whether a zero met NaN or infinity.
  if (are_finite(c + (rows - 1) * columns, columns)) return;
  for (std::int64_t row = 0; row < rows; ++row)
    run_small_matmul({1, columns, row + 1, lower + row * rows, rows, 1, b, columns, 1, c + row * columns, columns},
                     scratch);
}

void Chunk::load(const LinearAttentionInputs& a, std::int64_t b, std::int64_t head,
                 const std::vector<std::int64_t>& times, std::int64_t first) {
  count = std::min<std::int64_t>(chunk_tokens, static_cast<std::int64_t>(times.size()) - first);
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t t = times[first + i], gate = a.gate_at(b, t, head);
    time[i] = t;
    total += std::max(a.log_decay[gate], least_log_decay);
    log_total[i] = total;
    since_start[i] = static_cast<float>(std::exp(total));
    beta[i] = a.beta != nullptr ? a.beta[gate] : 1.0F;
    std::copy_n(a.row(a.q, a.q_strides, b, t, a.group(head)), a.key_size, q + i * a.key_size);
    std::copy_n(a.row(a.k, a.k_strides, b, t, a.group(head)), a.key_size, k + i * a.key_size);
    std::copy_n(a.row(a.v, a.v_strides, b, t, head), a.value_size, v + i * a.value_size);
  }
  for (std::int64_t i = 0; i < count; ++i) to_end[i] = static_cast<float>(std::exp(total - log_total[i]));
  decay = static_cast<float>(std::exp(total));
}

void Chunk::apply_decay(float* products, bool with_diagonal) const {
  for (std::int64_t t = 0; t < count; ++t) {
    float* row = products + t * count;
    for (std::int64_t s = 0; s < t; ++s) row[s] *= std::exp(static_cast<float>(log_total[t] - log_total[s]));
    std::fill(row + t + (with_diagonal ? 1 : 0), row + count, 0.0F);
  }
}

std::vector<std::int64_t> real_tokens(const RecurrentTokens& tokens, std::int64_t b) {
  std::vector<std::int64_t> times;
  for (std::int64_t t = 0; t < tokens.time; ++t)
    if (tokens.is_real(b, t)) times.push_back(t);
  return times;
}

void scale_rows(const float* a, const std::array<float, chunk_tokens>& factors, std::int64_t rows, std::int64_t width,
                float* c) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i) c[r * width + i] = factors[r] * a[r * width + i];
}

void solve_chunk(const Chunk& chunk, const LinearAttentionInputs& a, const float* state, ChunkProducts& products,
                 const ChunkSpace& space, float* r, float* u) {
  const std::int64_t n = chunk.count, width = a.value_size;
  std::copy_n(chunk.v, n * width, r);
  if (a.beta == nullptr) {
    if (u != r) std::copy_n(chunk.v, n * width, u);
    return;
  }
  scale_rows(chunk.k, chunk.since_start, n, a.key_size, space.keys);
  products.multiply(n, width, a.key_size, space.keys, state, r, true, -1);
  products.multiply_transposed(n, n, a.key_size, chunk.k, chunk.k, space.products);
  chunk.apply_decay(space.products, false);
  constexpr std::int64_t block = 16;
  for (std::int64_t first = 0; first < n; first += block) {
    // The contribution of earlier blocks is a product; within a block rows depend on each other.
    const std::int64_t end = std::min(first + block, n);
    if (first > 0)
      run_small_matmul({end - first, width, first, space.products + first * n, n, 1, u, width, 1, r + first * width,
                        width, -1, true},
                       products.scratch);
    for (std::int64_t t = first; t < end; ++t) {
      float* row = r + t * width;
      for (std::int64_t s = first; s < t; ++s) {
        const float factor = space.products[t * n + s];
        for (std::int64_t j = 0; j < width; ++j) row[j] -= factor * u[s * width + j];
      }
      for (std::int64_t j = 0; j < width; ++j) u[t * width + j] = chunk.beta[t] * row[j];
    }
  }
}

void advance_state(const Chunk& chunk, const LinearAttentionInputs& a, const float* u, ChunkProducts& products,
                   float* keys, float* state) {
  for (std::int64_t e = 0; e < a.state_size(); ++e) state[e] *= chunk.decay;
  scale_rows(chunk.k, chunk.to_end, chunk.count, a.key_size, keys);
  products.transposed_multiply(a.key_size, a.value_size, chunk.count, keys, u, state, true);
}

}  // namespace jerboa::cpu
