#pragma once

#include <array>
#include <cstdint>

#include <jerboa/ir/attrs.h>

#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// The operands of attention and its gradient. Strides are in elements; the last axis of q, k, v and of all results
/// that have a head's features is contiguous, so that [batch, time, heads, size] memory works as well as [batch, heads,
/// time, size].
struct AttentionInputs {
  std::int64_t batch = 0, heads = 0, key_heads = 0, time = 0, keys = 0;
  std::int64_t size = 0;        ///< of a head of q and k
  std::int64_t value_size = 0;  ///< of a head of v and out

  using Strides = std::array<std::int64_t, 3>;  ///< batch, head, time
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  Strides q_strides{}, k_strides{}, v_strides{};
  // Instead of k and v, for attention alone: a cache of f16, or in 8 bits (ir/packed_cache.h), whose strides are in
  // words.
  const std::uint16_t* k_half = nullptr;
  const std::uint16_t* v_half = nullptr;
  const std::uint32_t* k_packed = nullptr;
  const std::uint32_t* v_packed = nullptr;
  /// Paged keys and values: those from i * block on are in block table[batch, i], and the first stride is a block's.
  const std::int32_t* table = nullptr;  ///< [batch, keys / block]; null: not paged
  std::int64_t block = 0, blocks = 0;

  // Optional: null if absent. A mask's strides are those of batch, head, time and key, 0 along axes that it broadcasts
  // over.
  const float* mask_float = nullptr;                               ///< added to the scores
  float mask_hidden = static_cast<float>(hidden_key(DType::f32));  ///< a float mask at or below this hides the key
  const std::uint32_t* mask_bool = nullptr;                        ///< 0: not seen
  std::array<std::int64_t, 4> mask_strides{};
  const float* sinks = nullptr;           ///< [heads]
  const std::int32_t* lengths = nullptr;  ///< [batch]
  const std::int32_t* positions = nullptr;
  std::array<std::int64_t, 2> position_strides{};

  float scale = 0;  ///< 0: 1 / sqrt(size)
  bool causal = false;
  std::int64_t window = 0;
  float soft_cap = 0;
  bool ring = false;
};

struct AttentionProblem : AttentionInputs {
  float* out = nullptr;
  Strides out_strides{};
  float* lse = nullptr;  ///< [batch, heads, time], contiguous
};

/// Writes all of out and lse. A query that sees no keys gets zeros and an lse of -3.4e38.
void run_attention(const AttentionProblem& problem, ThreadPool& pool);

struct AttentionGradProblem : AttentionInputs {
  const float* out = nullptr;
  const float* dout = nullptr;
  Strides out_strides{}, dout_strides{};
  const float* lse = nullptr;  ///< [batch, heads, time], contiguous

  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  Strides dq_strides{}, dk_strides{}, dv_strides{};
  float* dsinks = nullptr;  ///< [heads]; null: not requested
  float* dmask = nullptr;   ///< of mask_float; null: not requested. A stride of 0 sums over that axis.
  std::array<std::int64_t, 4> dmask_strides{};
};

/// Writes all requested gradients.
void run_attention_grad(const AttentionGradProblem& problem, ThreadPool& pool);

}  // namespace jerboa::cpu
