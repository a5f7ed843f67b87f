#include "backend/cpu/linear_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cpu/linear_attention_chunk.h"
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/linear_attention.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// Processes one token on one head's state, a few columns at a time: they are read twice, the second time from the
// cache.
HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <int vectors, class D>
HWY_INLINE void step_columns(D d, const LinearAttentionStep& step, std::int64_t column) {
  using V = hn::Vec<D>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d)), width = step.value_size;
  const V decay = hn::Set(d, step.decay);
  V written[vectors], sums[vectors];
  for (int i = 0; i < vectors; ++i) {
    written[i] = hn::LoadU(d, step.v + column + i * lanes);
    sums[i] = hn::Zero(d);
  }
  if (step.is_delta && step.before != nullptr) {
    for (std::int64_t row = 0; row < step.key_size; ++row) {
      const V factor = hn::Set(d, step.k[row]);
      const float* from = step.before + row * width + column;
      for (int i = 0; i < vectors; ++i) sums[i] = hn::MulAdd(factor, hn::LoadU(d, from + i * lanes), sums[i]);
    }
    for (int i = 0; i < vectors; ++i) {
      written[i] = hn::NegMulAdd(decay, sums[i], written[i]);
      sums[i] = hn::Zero(d);
    }
  }
  for (int i = 0; i < vectors; ++i) written[i] = hn::Mul(hn::Set(d, step.beta), written[i]);
  for (std::int64_t row = 0; row < step.key_size; ++row) {
    const V key = hn::Set(d, step.k[row]), query = hn::Set(d, step.q[row]);
    float* to = step.after + row * width + column;
    for (int i = 0; i < vectors; ++i) {
      V state = hn::Mul(key, written[i]);
      if (step.before != nullptr)
        state = hn::MulAdd(decay, hn::LoadU(d, step.before + row * width + column + i * lanes), state);
      hn::StoreU(state, d, to + i * lanes);
      sums[i] = hn::MulAdd(query, state, sums[i]);
    }
  }
  for (int i = 0; i < vectors; ++i) hn::StoreU(sums[i], d, step.y + column + i * lanes);
}

void take_step(const LinearAttentionStep& step) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t column = 0;
  for (; column + 4 * lanes <= step.value_size; column += 4 * lanes) step_columns<4>(d, step, column);
  for (; column + lanes <= step.value_size; column += lanes) step_columns<1>(d, step, column);
  for (; column < step.value_size; ++column) step_columns<1>(hn::CappedTag<float, 1>(), step, column);
}

}  // namespace
}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::cpu {
namespace {

HWY_EXPORT(take_step);

// The fixed cost of a chunk is as high as that of several tokens one by one.
constexpr std::int64_t few_tokens = 8;

void step_by_step(const LinearAttentionProblem& p, std::int64_t b, std::int64_t head,
                  const std::vector<std::int64_t>& times, float* after) {
  const float* before = p.initial(b, head);
  for (const std::int64_t t : times) {
    const std::int64_t gate = p.gate_at(b, t, head);
    LinearAttentionStep step;
    step.key_size = p.key_size;
    step.value_size = p.value_size;
    step.q = p.row(p.q, p.q_strides, b, t, p.group(head));
    step.k = p.row(p.k, p.k_strides, b, t, p.group(head));
    step.v = p.row(p.v, p.v_strides, b, t, head);
    step.decay = std::exp(p.log_decay[gate]);
    step.is_delta = p.beta != nullptr;
    step.beta = p.beta != nullptr ? p.beta[gate] : 1.0F;
    step.before = before;
    step.after = after;
    step.y = p.y + gate * p.value_size;
    HWY_DYNAMIC_DISPATCH(take_step)(step);
    before = after;
  }
}

void in_chunks(const LinearAttentionProblem& p, std::int64_t b, std::int64_t head,
               const std::vector<std::int64_t>& times, float* state) {
  static thread_local Scratch<float> scratch;
  static thread_local ChunkProducts products;
  const std::int64_t keys = chunk_tokens * p.key_size, values = chunk_tokens * p.value_size;
  float* next = scratch.get(3 * keys + 3 * values + chunk_tokens * chunk_tokens);
  const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
  Chunk chunk;
  chunk.q = take(keys);
  chunk.k = take(keys);
  chunk.v = take(values);
  float *u = take(values), *y = take(values), *scaled = take(keys), *square = take(chunk_tokens * chunk_tokens);
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(times.size()); first += chunk_tokens) {
    chunk.load(p, b, head, times, first);
    const std::int64_t n = chunk.count;
    // y is reused for r, which the output does not need.
    solve_chunk(chunk, p, state, products, {scaled, square}, y, u);
    products.multiply_transposed(n, n, p.key_size, chunk.q, chunk.k, square);
    chunk.apply_decay(square, true);
    products.lower_multiply(n, p.value_size, square, u, y);
    scale_rows(chunk.q, chunk.since_start, n, p.key_size, scaled);
    products.multiply(n, p.value_size, p.key_size, scaled, state, y, true);
    for (std::int64_t i = 0; i < n; ++i)
      std::copy_n(y + i * p.value_size, p.value_size, p.y + p.gate_at(b, chunk.time[i], head) * p.value_size);
    advance_state(chunk, p, u, products, scaled, state);
  }
}

void run_head(const LinearAttentionProblem& p, std::int64_t b, std::int64_t head) {
  static thread_local Scratch<float> unused;
  for (std::int64_t t = 0; t < p.tokens.time; ++t)
    if (!p.tokens.is_real(b, t)) std::fill_n(p.y + p.gate_at(b, t, head) * p.value_size, p.value_size, 0.0F);
  const std::int64_t row = p.tokens.row(b);
  float* state = row < 0 ? unused.get(p.state_size()) : p.next + (row * p.heads + head) * p.state_size();
  const std::vector<std::int64_t> times = real_tokens(p.tokens, b);
  if (!times.empty() && static_cast<std::int64_t>(times.size()) <= few_tokens)
    return step_by_step(p, b, head, times, state);
  const float* initial = p.initial(b, head);
  if (initial == nullptr)
    std::fill_n(state, p.state_size(), 0.0F);
  else if (initial != state)
    std::copy_n(initial, p.state_size(), state);
  in_chunks(p, b, head, times, state);
}

}  // namespace

void run_linear_attention(const LinearAttentionProblem& p, ThreadPool& pool) {
  // Rows that belong to no sequence keep their contents.
  if (p.tokens.slots != nullptr && p.next != p.state)
    std::copy_n(p.state, p.tokens.rows * p.heads * p.state_size(), p.next);
  pool.run(p.tokens.batch * p.heads, [&](std::int64_t task, int) { run_head(p, task / p.heads, task % p.heads); });
}

}  // namespace jerboa::cpu
#endif
