#pragma once

#include <array>

#include "backend/cpu/recurrent_tokens.h"
#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// The state [rows, taps - 1, channels], weight [channels, taps] and y [batch, time, channels] are contiguous; of x,
/// only the channels are.
struct CausalConvProblem {
  RecurrentTokens tokens;
  std::int64_t channels = 0, taps = 0;
  const float *state = nullptr, *x = nullptr, *weight = nullptr;  ///< state may be null
  std::array<std::int64_t, 2> x_strides{};                        ///< batch, time
  float *next = nullptr, *y = nullptr;                            ///< next may be the state
};
void run_causal_conv1d(const CausalConvProblem& problem, ThreadPool& pool);

}  // namespace jerboa::cpu
