#pragma once

#include <array>

#include "backend/cpu/recurrent_tokens.h"
#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// The operands of linear_attention and its gradient. States [rows, heads, key size, value size] and gates [batch,
/// time, heads] are contiguous; so are the features of q, k and v.
struct LinearAttentionInputs {
  using Strides = std::array<std::int64_t, 3>;  ///< batch, time, head

  RecurrentTokens tokens;
  std::int64_t heads = 0, groups = 0, key_size = 0, value_size = 0;
  const float* state = nullptr;  ///< null: zeros
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  Strides q_strides{}, k_strides{}, v_strides{};
  const float *log_decay = nullptr, *beta = nullptr;  ///< beta may be null

  std::int64_t state_size() const { return key_size * value_size; }
  std::int64_t group(std::int64_t head) const { return head / (heads / groups); }
  std::int64_t gate_at(std::int64_t b, std::int64_t t, std::int64_t head) const {
    return (b * tokens.time + t) * heads + head;
  }
  const float* row(const float* tensor, const Strides& strides, std::int64_t b, std::int64_t t, std::int64_t h) const {
    return tensor + b * strides[0] + t * strides[1] + h * strides[2];
  }
  /// The sequence's state of a head; null if it starts from zeros.
  const float* initial(std::int64_t b, std::int64_t head) const {
    const float* all = tokens.initial(state, b, heads * state_size());
    return all == nullptr ? nullptr : all + head * state_size();
  }
};

/// A log decay below this forgets everything in f32; the bound keeps sums of log decays exact enough.
constexpr float least_log_decay = -200;

struct LinearAttentionProblem : LinearAttentionInputs {
  float *next = nullptr, *y = nullptr;  ///< next may be the state; y is contiguous
};
void run_linear_attention(const LinearAttentionProblem& problem, ThreadPool& pool);

/// Gradients, contiguous. dnext, dbeta and dstate may be null.
struct LinearAttentionGradProblem : LinearAttentionInputs {
  const float *dnext = nullptr, *dy = nullptr;
  float *dq = nullptr, *dk = nullptr, *dv = nullptr, *dlog_decay = nullptr, *dbeta = nullptr, *dstate = nullptr;
};
void run_linear_attention_grad(const LinearAttentionGradProblem& problem, ThreadPool& pool);

}  // namespace jerboa::cpu
