#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "backend/cpu/linear_attention.h"
#include "backend/cpu/linear_attention_chunk.h"
#include "backend/cpu/matmul.h"
#include "base/integers.h"

// The gradient of linear attention, chunk by chunk from the last. A first pass keeps the state before each chunk and
// the updates that each token writes. In the terms of linear_attention_chunk.h, with E the gradient of the state after
// the chunk,
//   du = (D ∘ q kᵀ)ᵀ dy + exp(g of the last - g) k E - (D ∘ k kᵀ)ᵀ dr,   dr = beta du,
// solved from the last row. The gradients of q and k are products of these with the state and with each other. That of
// g at a token is q dq, and k dk for k's part in r, less k dk for its part in what is written, because that is where
// exp(g) and exp(-g) occur; a log decay is in g at its token and all later ones.
//
// All of these are sums over the tokens of a chunk, in which some tokens have factors of zero and what cancels is added
// first. NaN and infinity would reach tokens that they do not belong to, so a chunk that has one goes back token by
// token, as the recurrence is defined: after E += q dyᵀ,
//   du = k E,   dk = E u - P dr,   then E -= k drᵀ for the delta rule,   dlog_decay = E ∘ P,   E *= decay,
// with P the decayed state before the token.
namespace jerboa::cpu {
namespace {

// In double: the gradient of a log decay is a small difference of such sums.
double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// result[j] = sum of row[i] * matrix[i, j]
void multiply_row(const float* row, const float* matrix, std::int64_t rows, std::int64_t columns, float* result) {
  std::fill_n(result, columns, 0.0F);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) result[j] += row[i] * matrix[i * columns + j];
}

// result[i] += factor * sum of matrix[i, j] * column[j]
void add_product(const float* matrix, const float* column, std::int64_t rows, std::int64_t columns, float factor,
                 float* result) {
  for (std::int64_t i = 0; i < rows; ++i)
    result[i] += factor * static_cast<float>(dot(matrix + i * columns, column, columns));
}

// matrix[i, j] += factor * column[i] * row[j]
void add_outer(const float* column, const float* row, std::int64_t rows, std::int64_t columns, float factor,
               float* matrix) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) matrix[i * columns + j] += factor * column[i] * row[j];
}

// The gradients of one head of one sequence.
class HeadGradient {
 public:
  // dq and dk are this head's, [batch, time, heads, key size].
  HeadGradient(const LinearAttentionGradProblem& problem, float* dq, float* dk, std::int64_t b, std::int64_t head)
      : p_(problem), dq_(dq), dk_(dk), b_(b), head_(head), times_(real_tokens(problem.tokens, b)) {
    const auto tokens = static_cast<std::int64_t>(times_.size());
    chunks_ = detail::divide_up(tokens, chunk_tokens);
    const std::int64_t keys = chunk_tokens * p_.key_size, values = chunk_tokens * p_.value_size;
    const std::int64_t square = chunk_tokens * chunk_tokens;
    static thread_local Scratch<float> scratch;
    float* next =
        scratch.get((chunks_ + 2) * p_.state_size() + 2 * tokens * p_.value_size + 6 * keys + 5 * values + 2 * square);
    const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
    states_ = take((chunks_ + 1) * p_.state_size());
    dstate_ = take(p_.state_size());
    r_ = take(tokens * p_.value_size);
    u_ = take(tokens * p_.value_size);
    chunk_.q = take(keys);
    chunk_.k = take(keys);
    chunk_.v = take(values);
    scaled_keys_ = take(keys);
    dq_chunk_ = take(keys);
    dk_written_ = take(keys);
    dk_read_ = take(keys);
    dy_ = take(values);
    du_ = take(values);
    dr_ = take(values);
    scaled_values_ = take(values);
    scores_ = take(square);
    overlaps_ = take(square);
  }

  void run() {
    clear_skipped();
    keep_states();
    if (p_.dnext != nullptr)
      std::copy_n(p_.dnext + (b_ * p_.heads + head_) * p_.state_size(), p_.state_size(), dstate_);
    else
      std::fill_n(dstate_, p_.state_size(), 0.0F);
    for (std::int64_t c = chunks_ - 1; c >= 0; --c) go_back(c);
    if (p_.dstate == nullptr) return;
    float* to = p_.dstate + (b_ * p_.heads + head_) * p_.state_size();
    if (p_.tokens.starts_from_zeros(b_))
      std::fill_n(to, p_.state_size(), 0.0F);
    else
      std::copy_n(dstate_, p_.state_size(), to);
  }

 private:
  void clear_skipped() {
    for (std::int64_t t = 0; t < p_.tokens.time; ++t) {
      if (p_.tokens.is_real(b_, t)) continue;
      const std::int64_t gate = p_.gate_at(b_, t, head_);
      std::fill_n(dq_ + gate * p_.key_size, p_.key_size, 0.0F);
      std::fill_n(dk_ + gate * p_.key_size, p_.key_size, 0.0F);
      std::fill_n(p_.dv + gate * p_.value_size, p_.value_size, 0.0F);
      p_.dlog_decay[gate] = 0;
      if (p_.dbeta != nullptr) p_.dbeta[gate] = 0;
    }
  }

  void keep_states() {
    if (const float* initial = p_.initial(b_, head_))
      std::copy_n(initial, p_.state_size(), states_);
    else
      std::fill_n(states_, p_.state_size(), 0.0F);
    for (std::int64_t c = 0; c < chunks_; ++c) {
      const float* state = states_ + c * p_.state_size();
      float* next = states_ + (c + 1) * p_.state_size();
      chunk_.load(p_, b_, head_, times_, c * chunk_tokens);
      float *r = r_ + c * chunk_tokens * p_.value_size, *u = u_ + c * chunk_tokens * p_.value_size;
      solve_chunk(chunk_, p_, state, products_, {scaled_keys_, overlaps_}, r, u);
      std::copy_n(state, p_.state_size(), next);
      advance_state(chunk_, p_, u, products_, scaled_keys_, next);
    }
  }

  void go_back(std::int64_t c) {
    chunk_.load(p_, b_, head_, times_, c * chunk_tokens);
    const std::int64_t values = p_.value_size;
    const float* state = states_ + c * p_.state_size();
    float* r = r_ + c * chunk_tokens * values;
    const float* u = u_ + c * chunk_tokens * values;
    for (std::int64_t i = 0; i < chunk_.count; ++i)
      std::copy_n(p_.dy + p_.gate_at(b_, chunk_.time[i], head_) * values, values, dy_ + i * values);
    if (is_finite(state, u))
      in_products(state, u);
    else
      token_by_token(state, r);
    store(r);
  }

  // Checks the chunk's operands, its states and what its tokens write, which an infinite v makes infinite.
  bool is_finite(const float* state, const float* u) const {
    const std::int64_t n = chunk_.count, keys = n * p_.key_size, values = n * p_.value_size;
    return std::isfinite(chunk_.log_total[n - 1]) && are_finite(chunk_.beta.data(), n) && are_finite(chunk_.q, keys) &&
           are_finite(chunk_.k, keys) && are_finite(u, values) && are_finite(dy_, values) &&
           are_finite(state, p_.state_size()) && are_finite(dstate_, p_.state_size());
  }

  void in_products(const float* state, const float* u) {
    const std::int64_t n = chunk_.count, keys = p_.key_size, values = p_.value_size;
    const float* next = state + p_.state_size();
    products_.multiply_transposed(n, n, keys, chunk_.q, chunk_.k, scores_);
    chunk_.apply_decay(scores_, true);
    products_.transposed_multiply(n, values, n, scores_, dy_, du_);
    scale_rows(chunk_.k, chunk_.to_end, n, keys, scaled_keys_);
    products_.multiply(n, values, keys, scaled_keys_, dstate_, du_, true);
    solve_written();

    products_.multiply_transposed(n, n, values, dy_, u, scores_);
    chunk_.apply_decay(scores_, true);
    products_.multiply(n, keys, n, scores_, chunk_.k, dq_chunk_);
    products_.transposed_multiply(n, keys, n, scores_, chunk_.q, dk_written_);
    scale_rows(u, chunk_.to_end, n, values, scaled_values_);
    products_.multiply_transposed(n, keys, values, scaled_values_, dstate_, dk_written_, true);
    const double after_chunk = dot(dstate_, next, p_.state_size());

    for (std::int64_t e = 0; e < p_.state_size(); ++e) dstate_[e] *= chunk_.decay;
    scale_rows(dy_, chunk_.since_start, n, values, scaled_values_);
    products_.multiply_transposed(n, keys, values, scaled_values_, state, dq_chunk_, true);
    products_.transposed_multiply(keys, values, n, chunk_.q, scaled_values_, dstate_, true);
    if (p_.beta != nullptr) {
      products_.multiply_transposed(n, n, values, dr_, u, scores_);
      chunk_.apply_decay(scores_, false);
      products_.multiply(n, keys, n, scores_, chunk_.k, dk_read_, false, -1);
      products_.transposed_multiply(n, keys, n, scores_, chunk_.k, dk_written_, true, -1);
      scale_rows(dr_, chunk_.since_start, n, values, scaled_values_);
      products_.multiply_transposed(n, keys, values, scaled_values_, state, dk_read_, true, -1);
      products_.transposed_multiply(keys, values, n, chunk_.k, scaled_values_, dstate_, true, -1);
    } else {
      std::fill_n(dk_read_, n * keys, 0.0F);
    }
    double later = after_chunk;
    for (std::int64_t i = n - 1; i >= 0; --i) {
      const float *q = chunk_.q + i * keys, *k = chunk_.k + i * keys;
      float *dq = dq_chunk_ + i * keys, *read = dk_read_ + i * keys, *written = dk_written_ + i * keys;
      later += dot(q, dq, keys) + dot(k, read, keys) - dot(k, written, keys);
      dlog_decay_[i] = later;
    }
    for (std::int64_t e = 0; e < n * keys; ++e) dk_written_[e] += dk_read_[e];
  }

  // Computes du and dr from the readers of u within the chunk and after it.
  void solve_written() {
    const std::int64_t n = chunk_.count, width = p_.value_size;
    if (p_.beta == nullptr) {
      std::copy_n(du_, n * width, dr_);
      return;
    }
    products_.multiply_transposed(n, n, p_.key_size, chunk_.k, chunk_.k, overlaps_);
    chunk_.apply_decay(overlaps_, false);
    constexpr std::int64_t block = 16;
    for (std::int64_t end = n; end > 0;) {
      const std::int64_t first = (end - 1) / block * block;
      if (end < n)
        run_small_matmul({end - first, width, n - end, overlaps_ + end * n + first, 1, n, dr_ + end * width, width, 1,
                          du_ + first * width, width, -1, true},
                         products_.scratch);
      for (std::int64_t t = end - 1; t >= first; --t) {
        for (std::int64_t s = t + 1; s < end; ++s)
          for (std::int64_t j = 0; j < width; ++j) du_[t * width + j] -= overlaps_[s * n + t] * dr_[s * width + j];
        for (std::int64_t j = 0; j < width; ++j) dr_[t * width + j] = chunk_.beta[t] * du_[t * width + j];
      }
      end = first;
    }
  }

  // One token's part of the recurrence. r is v, or v - k P with the delta rule, and u what the token writes.
  struct Token {
    const float *q, *k, *v, *dy;
    float decay, beta;
  };
  Token token(std::int64_t i) const {
    const float log_decay = p_.log_decay[p_.gate_at(b_, chunk_.time[i], head_)];
    return {chunk_.q + i * p_.key_size,
            chunk_.k + i * p_.key_size,
            chunk_.v + i * p_.value_size,
            dy_ + i * p_.value_size,
            std::exp(std::max(log_decay, least_log_decay)),
            chunk_.beta[i]};
  }

  void write(const Token& token, const float* before, float* decayed, float* r, float* u) const {
    const std::int64_t keys = p_.key_size, values = p_.value_size;
    for (std::int64_t e = 0; e < p_.state_size(); ++e) decayed[e] = token.decay * before[e];
    std::copy_n(token.v, values, r);
    if (p_.beta != nullptr) {
      multiply_row(token.k, decayed, keys, values, u);
      for (std::int64_t j = 0; j < values; ++j) r[j] -= u[j];
    }
    for (std::int64_t j = 0; j < values; ++j) u[j] = token.beta * r[j];
  }

  void token_by_token(const float* state, float* r) {
    const std::int64_t n = chunk_.count, keys = p_.key_size, values = p_.value_size, size = p_.state_size();
    std::vector<float> states(static_cast<std::size_t>((n + 1) * size)), decayed_state(static_cast<std::size_t>(size)),
        written(static_cast<std::size_t>(values));
    float *decayed = decayed_state.data(), *u = written.data();
    std::copy_n(state, size, states.data());
    for (std::int64_t i = 0; i < n; ++i) {
      const float* before = states.data() + i * size;
      float* after = states.data() + (i + 1) * size;
      write(token(i), before, decayed, r + i * values, u);
      std::copy_n(decayed, size, after);
      add_outer(chunk_.k + i * keys, u, keys, values, 1, after);
    }
    std::fill_n(dq_chunk_, n * keys, 0.0F);
    std::fill_n(dk_written_, n * keys, 0.0F);
    for (std::int64_t i = n - 1; i >= 0; --i) {
      const Token now = token(i);
      const float* before = states.data() + i * size;
      float *du = du_ + i * values, *dr = dr_ + i * values, *dk = dk_written_ + i * keys;
      write(now, before, decayed, r + i * values, u);
      add_product(before + size, now.dy, keys, values, 1, dq_chunk_ + i * keys);
      add_outer(now.q, now.dy, keys, values, 1, dstate_);
      multiply_row(now.k, dstate_, keys, values, du);
      for (std::int64_t j = 0; j < values; ++j) dr[j] = now.beta * du[j];
      add_product(dstate_, u, keys, values, 1, dk);
      if (p_.beta != nullptr) {
        add_product(decayed, dr, keys, values, -1, dk);
        add_outer(now.k, dr, keys, values, -1, dstate_);
      }
      dlog_decay_[i] = dot(dstate_, decayed, size);
      for (std::int64_t e = 0; e < size; ++e) dstate_[e] *= now.decay;
    }
  }

  void store(const float* r) {
    const std::int64_t keys = p_.key_size, values = p_.value_size;
    for (std::int64_t i = 0; i < chunk_.count; ++i) {
      const std::int64_t gate = p_.gate_at(b_, chunk_.time[i], head_);
      p_.dlog_decay[gate] = static_cast<float>(dlog_decay_[i]);
      std::copy_n(dq_chunk_ + i * keys, keys, dq_ + gate * keys);
      std::copy_n(dk_written_ + i * keys, keys, dk_ + gate * keys);
      std::copy_n(dr_ + i * values, values, p_.dv + gate * values);
      if (p_.dbeta != nullptr) p_.dbeta[gate] = static_cast<float>(dot(du_ + i * values, r + i * values, values));
    }
  }

  const LinearAttentionGradProblem& p_;
  float *dq_, *dk_;
  std::int64_t b_, head_;
  std::vector<std::int64_t> times_;
  std::int64_t chunks_ = 0;
  Chunk chunk_;
  ChunkProducts products_;
  std::array<double, chunk_tokens> dlog_decay_;
  float *states_, *dstate_, *r_, *u_, *scaled_keys_, *dq_chunk_, *dk_written_, *dk_read_, *dy_, *du_, *dr_,
      *scaled_values_, *scores_, *overlaps_;
};

// The gradient of rows that heads share: sums over the heads of each group.
void sum_heads(const LinearAttentionInputs& a, const std::vector<float>& of_heads, float* of_groups, ThreadPool& pool) {
  const std::int64_t shared = a.heads / a.groups;
  pool.run(a.tokens.batch * a.tokens.time, [&](std::int64_t token, int) {
    for (std::int64_t g = 0; g < a.groups; ++g) {
      float* to = of_groups + (token * a.groups + g) * a.key_size;
      const float* from = of_heads.data() + (token * a.heads + g * shared) * a.key_size;
      std::copy_n(from, a.key_size, to);
      for (std::int64_t h = 1; h < shared; ++h)
        for (std::int64_t i = 0; i < a.key_size; ++i) to[i] += from[h * a.key_size + i];
    }
  });
}

}  // namespace

void run_linear_attention_grad(const LinearAttentionGradProblem& p, ThreadPool& pool) {
  std::vector<float> dq, dk;
  const bool is_shared = p.heads != p.groups;
  if (is_shared) {
    const auto count = static_cast<std::size_t>(p.tokens.batch * p.tokens.time * p.heads * p.key_size);
    dq.resize(count);
    dk.resize(count);
  }
  float *to_q = is_shared ? dq.data() : p.dq, *to_k = is_shared ? dk.data() : p.dk;
  pool.run(p.tokens.batch * p.heads,
           [&](std::int64_t task, int) { HeadGradient(p, to_q, to_k, task / p.heads, task % p.heads).run(); });
  if (!is_shared) return;
  sum_heads(p, dq, p.dq, pool);
  sum_heads(p, dk, p.dk, pool);
}

}  // namespace jerboa::cpu
