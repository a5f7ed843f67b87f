#include <cstdint>
#include <limits>

#include <jerboa/models/greedy.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {
namespace {

// The argmax of logits [1, 1, count], the first if several are equal. One workgroup reduces a row, so long rows are
// split into parts.
Tensor argmax_in_parts(const Tensor& logits) {
  constexpr std::int64_t max_parts = 256;
  const std::int64_t count = logits.dim(-1).value();
  std::int64_t parts = max_parts;
  while (count % parts != 0) --parts;
  const std::int64_t length = count / parts;
  const Tensor rows = reshape(logits, {1, parts, length});
  const Tensor best = max(rows, {-1});
  const Tensor tokens = argmax(rows, -1) + arange(parts) * length;
  const Tensor is_best = equal(best, max(best, {-1}, true));
  return min(where(is_best, tokens, std::numeric_limits<std::int32_t>::max()), {-1});
}

struct LoopStates {
  Tensor token = state_input(greedy_token, {1, 1}, DType::i32);
  Tensor position = state_input(greedy_position, {1, 1}, DType::i32);
  Tensor length = state_input(greedy_length, {1}, DType::i32, Init::constant(1));
};

Tensor next_token(const Config& config, const GreedyOptions& options, const Tensor& ids, const Tensor& positions,
                  const Tensor& lengths) {
  return argmax_in_parts(
      family_of(config).logits(config, {.tensors = {{"ids", ids}, {"positions", positions}, {"lengths", lengths}},
                                        .cache = options.cache,
                                        .last = 1,
                                        .weights = options.weights}));
}

}  // namespace

Graph greedy_prompt_graph(const Config& config, const Dim& time, const GreedyOptions& options) {
  return trace([&] {
    const SiteScope scope(CallSite{});
    const Tensor ids = tensor_input("ids", {1, time}, DType::i32);
    const Tensor positions = tensor_input("positions", {1, time}, DType::i32);
    const Tensor lengths = tensor_input("lengths", {1}, DType::i32);
    const LoopStates states;
    const Tensor next = next_token(config, options, ids, positions, lengths);
    update(states.token, reshape(next, {1, 1}));
    update(states.position, reshape(lengths, {1, 1}));
    update(states.length, lengths + 1);
    output("token", next);
  });
}

Graph greedy_step_graph(const Config& config, const GreedyOptions& options) {
  return trace([&] {
    const SiteScope scope(CallSite{});
    const LoopStates states;
    const Tensor next = next_token(config, options, states.token, states.position, states.length);
    update(states.token, reshape(next, {1, 1}));
    update(states.position, states.position + 1);
    update(states.length, states.length + 1);
    output("token", next);
  });
}

}  // namespace jerboa::models
