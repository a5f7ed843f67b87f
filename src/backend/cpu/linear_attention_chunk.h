#pragma once

#include <array>
#include <vector>

#include "backend/cpu/linear_attention.h"
#include "backend/cpu/scratch.h"

// Linear attention in chunks of tokens. With g the sum of the log decays from the chunk's first token up to a token,
// S the state before the chunk, and D[t, s] = exp(g[t] - g[s]), the recurrence unrolls to
//   r = v - exp(g) k S - (D ∘ k kᵀ) u   below the diagonal,   u = beta r,   or u = v without the delta rule,
//   y = exp(g) q S + (D ∘ q kᵀ) u       up to the diagonal,
//   next S = exp(g of the last) (S + (exp(-g) k)ᵀ u),
// all of which are matrix products except the triangular system for u, whose rows are solved one after another.
namespace jerboa::cpu {

constexpr std::int64_t chunk_tokens = 32;

/// One token on one head's state. No pointer is null except `before`, which then means zeros, and which may equal
/// `after`.
struct LinearAttentionStep {
  std::int64_t key_size = 0, value_size = 0;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float decay = 1, beta = 1;
  bool is_delta = false;
  const float* before = nullptr;
  float *after = nullptr, *y = nullptr;
};

/// Whether none of the numbers is NaN or infinite.
bool are_finite(const float* x, std::int64_t count);

/// A product a bᵀ or a b of row-major matrices, or aᵀ b, into c.
struct ChunkProducts {
  std::vector<float> scratch;

  /// c [rows, columns] = a [rows, inner] b [inner, columns]
  void multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a, const float* b, float* c,
                bool accumulate = false, float scale = 1);
  /// c [rows, columns] = a [rows, inner] (b [columns, inner])ᵀ
  void multiply_transposed(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a, const float* b,
                           float* c, bool accumulate = false, float scale = 1);
  /// c [rows, columns] = (a [inner, rows])ᵀ b [inner, columns]
  void transposed_multiply(std::int64_t rows, std::int64_t columns, std::int64_t inner, const float* a, const float* b,
                           float* c, bool accumulate = false, float scale = 1);
  /// c [rows, columns] = lower [rows, rows] b [rows, columns], where lower is zero above its diagonal: NaN and infinity
  /// in a row of b reach only the rows of c from there on.
  void lower_multiply(std::int64_t rows, std::int64_t columns, const float* lower, const float* b, float* c);
};

/// Up to chunk_tokens tokens of one sequence and head, packed without padding.
struct Chunk {
  std::int64_t count = 0;
  std::array<std::int64_t, chunk_tokens> time;
  std::array<double, chunk_tokens> log_total;                 ///< g
  std::array<float, chunk_tokens> beta, since_start, to_end;  ///< exp(g), exp(g of the last - g)
  float decay = 1;                                            ///< of the whole chunk
  float *q, *k, *v;                                           ///< [count, size]

  /// Loads those of `times` from `first` on. q, k and v have room for chunk_tokens rows.
  void load(const LinearAttentionInputs& a, std::int64_t b, std::int64_t head, const std::vector<std::int64_t>& times,
            std::int64_t first);
  /// Computes D ∘ products [count, count], zero above the diagonal, and on it unless `with_diagonal`.
  void apply_decay(float* products, bool with_diagonal) const;
};

/// The tokens of a sequence that are not padding.
std::vector<std::int64_t> real_tokens(const RecurrentTokens& tokens, std::int64_t b);

/// c[i] = factors[i] * a[i] for each row.
void scale_rows(const float* a, const std::array<float, chunk_tokens>& factors, std::int64_t rows, std::int64_t width,
                float* c);

/// The updates that the tokens of a chunk write: u [count, value size], and r, from which u is computed if there is a
/// beta (otherwise r may be u). `keys` has room for [chunk_tokens, key size], and `products` for a square.
struct ChunkSpace {
  float *keys, *products;
};
void solve_chunk(const Chunk& chunk, const LinearAttentionInputs& a, const float* state, ChunkProducts& products,
                 const ChunkSpace& space, float* r, float* u);
/// The state after the chunk.
void advance_state(const Chunk& chunk, const LinearAttentionInputs& a, const float* u, ChunkProducts& products,
                   float* keys, float* state);

}  // namespace jerboa::cpu
