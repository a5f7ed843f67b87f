#include "backend/cpu/causal_conv.h"

#include <algorithm>
#include <vector>

#include "base/integers.h"

namespace jerboa::cpu {
namespace {

constexpr std::int64_t channels_per_task = 64;

// A whole block is a loop of constant length, which compilers vectorise.
void add_product(const float* weight, const float* input, std::int64_t count, float* sums) {
  if (count == channels_per_task)
    for (std::int64_t c = 0; c < channels_per_task; ++c) sums[c] += weight[c] * input[c];
  else
    for (std::int64_t c = 0; c < count; ++c) sums[c] += weight[c] * input[c];
}

// Processes some channels of one sequence.
void convolve(const CausalConvProblem& p, std::int64_t b, std::int64_t first, std::int64_t count) {
  const std::int64_t before = p.taps - 1, width = before * p.channels;
  std::vector<float> weight(p.taps * channels_per_task), past(before * channels_per_task, 0.0F);
  for (std::int64_t tap = 0; tap < p.taps; ++tap)
    for (std::int64_t c = 0; c < count; ++c) weight[tap * channels_per_task + c] = p.weight[(first + c) * p.taps + tap];
  // The state is copied, because the next one may overwrite it.
  if (const float* state = p.tokens.initial(p.state, b, width))
    for (std::int64_t i = 0; i < before; ++i)
      std::copy_n(state + i * p.channels + first, count, past.data() + i * channels_per_task);
  std::vector<const float*> inputs;  // oldest first
  for (std::int64_t i = 0; i < before; ++i) inputs.push_back(past.data() + i * channels_per_task);
  for (std::int64_t t = 0; t < p.tokens.time; ++t) {
    std::array<float, channels_per_task> sums{};
    if (p.tokens.is_real(b, t)) {
      inputs.push_back(p.x + b * p.x_strides[0] + t * p.x_strides[1] + first);
      const float* const* seen = inputs.data() + inputs.size() - p.taps;
      for (std::int64_t tap = 0; tap < p.taps; ++tap)
        add_product(weight.data() + tap * channels_per_task, seen[tap], count, sums.data());
    }
    std::copy_n(sums.data(), count, p.y + (b * p.tokens.time + t) * p.channels + first);
  }
  const std::int64_t row = p.tokens.row(b);
  if (row < 0) return;
  for (std::int64_t i = 0; i < before; ++i)
    std::copy_n(inputs[inputs.size() - before + i], count, p.next + row * width + i * p.channels + first);
}

}  // namespace

void run_causal_conv1d(const CausalConvProblem& p, ThreadPool& pool) {
  // Rows that belong to no sequence keep their contents.
  if (p.tokens.slots != nullptr && p.next != p.state)
    std::copy_n(p.state, p.tokens.rows * (p.taps - 1) * p.channels, p.next);
  const std::int64_t blocks = detail::divide_up(p.channels, channels_per_task);
  pool.run(p.tokens.batch * blocks, [&](std::int64_t task, int) {
    const std::int64_t first = task % blocks * channels_per_task;
    convolve(p, task / blocks, first, std::min(channels_per_task, p.channels - first));
  });
}

}  // namespace jerboa::cpu
