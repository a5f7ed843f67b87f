#include "serving/step_builder.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <utility>

#include <jerboa/base/error.h>

namespace jerboa::serving {

Buckets::Buckets(std::vector<int> sizes, int most, const char* option) : sizes_(std::move(sizes)) {
  if (sizes_.empty()) {
    for (int size = 1; size < most; size *= 2) sizes_.push_back(size);
    sizes_.push_back(most);
  }
  const bool ascends = std::adjacent_find(sizes_.begin(), sizes_.end(), std::greater_equal<>()) == sizes_.end();
  if (sizes_.front() < 1 || !ascends || sizes_.back() < most)
    throw UsageError(
        fmt::format("{} must ascend from at least 1 to at least {}, not be {}", option, most, fmt::join(sizes_, ", ")));
}

int Buckets::size_for(int count) const { return *std::lower_bound(sizes_.begin(), sizes_.end(), std::max(count, 1)); }

namespace {

void allocate(Step& step, bool has_states, std::size_t windowed) {
  const auto rows = static_cast<std::size_t>(step.rows), cells = rows * static_cast<std::size_t>(step.time);
  step.ids.assign(cells, 0);
  step.positions.assign(cells, -1);
  step.lengths.assign(rows, 0);
  step.table.assign(rows * static_cast<std::size_t>(step.blocks), 0);
  step.windowed.assign(windowed, {step.table, {}});
  step.carried.assign(rows, -1);
  if (has_states) step.states.assign(rows, no_slot);
  SamplingInputs& sampling = step.sampling;
  for (auto* zeros : {&sampling.temperature, &sampling.min_p, &sampling.presence_penalty, &sampling.frequency_penalty})
    zeros->assign(rows, 0.0f);
  for (auto* ones : {&sampling.top_p, &sampling.repetition_penalty}) ones->assign(rows, 1.0f);
  sampling.top_k.assign(rows, 0);
  sampling.seed.assign(2 * rows, 0);
  sampling.draw.assign(rows, 0);
}

void set_sampling(SamplingInputs& out, std::size_t row, const RowInput& input) {
  if (input.row.wanted != Wanted::token) return;
  const SamplerOptions& options = *input.sampling;
  out.temperature[row] = options.temperature;
  out.top_k[row] = options.top_k;
  out.top_p[row] = options.top_p;
  out.min_p[row] = options.min_p;
  out.repetition_penalty[row] = options.repetition_penalty;
  out.presence_penalty[row] = options.presence_penalty;
  out.frequency_penalty[row] = options.frequency_penalty;
  out.seed[2 * row] = static_cast<std::uint32_t>(options.seed);
  out.seed[2 * row + 1] = static_cast<std::uint32_t>(options.seed >> 32);
  out.draw[row] = input.draw;
}

bool has_bias(const RowInput& input) {
  return input.row.wanted == Wanted::token &&
         !(input.sampling->logit_bias.empty() && input.sampling->banned_tokens.empty());
}

// Few sizes, because a program is compiled for each.
int list_size(std::size_t longest, int smallest) {
  int size = smallest;
  while (std::cmp_less(size, longest)) size *= 8;
  return size;
}

TokenValues empty_lists(std::size_t lists, int size) {
  const std::size_t count = lists * static_cast<std::size_t>(size);
  return {size, std::vector<std::int32_t>(count), std::vector<float>(count)};
}

void set_biases(Step& step, std::span<const RowInput> rows) {
  std::size_t longest = 0;
  for (const RowInput& input : rows)
    if (has_bias(input))
      longest = std::max(longest, input.sampling->logit_bias.size() + input.sampling->banned_tokens.size());
  if (longest == 0) return;
  TokenValues& bias = step.sampling.bias = empty_lists(static_cast<std::size_t>(step.rows), list_size(longest, 16));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!has_bias(rows[row])) continue;
    std::size_t at = row * static_cast<std::size_t>(bias.size);
    const auto put = [&](std::int32_t token, float value) {
      bias.tokens[at] = token;
      bias.values[at++] = std::clamp(value, banned_bias, -banned_bias);
    };
    for (const auto& [token, value] : rows[row].sampling->logit_bias) put(token, value);
    for (const int token : rows[row].sampling->banned_tokens) put(token, banned_bias);
  }
}

// The lists after a row's last token, and after each of its guesses.
void list_seen(Step& step, std::size_t row, const RowInput& input) {
  TokenValues& seen = step.sampling.seen;
  const auto size = static_cast<std::size_t>(seen.size), outputs = static_cast<std::size_t>(step.outputs);
  const auto list = [&](const SeenTokens& tokens, std::size_t output) {
    const std::size_t at = (row * outputs + output) * size;
    tokens.list(std::span(seen.tokens).subspan(at, size), std::span(seen.values).subspan(at, size));
  };
  const std::size_t first = outputs - 1 - input.draft.size();
  const bool changes = !input.draft.empty() || (input.carried >= 0 && input.seen->has_window());
  if (!changes) return list(*input.seen, first);
  SeenTokens tokens = *input.seen;  // copying takes time proportional to the text
  if (input.carried >= 0) tokens.leave_room();
  list(tokens, first);
  for (std::size_t i = 0; i < input.draft.size(); ++i) {
    tokens.push(input.draft[i]);
    list(tokens, first + i + 1);
  }
}

void set_seen(Step& step, std::span<const RowInput> rows) {
  const auto is_penalised = [](const RowInput& input) { return input.seen && input.row.wanted == Wanted::token; };
  std::size_t longest = 0;
  for (const RowInput& input : rows)
    if (is_penalised(input)) longest = std::max(longest, input.seen->size() + input.draft.size());
  if (longest == 0) return;
  step.sampling.seen = empty_lists(static_cast<std::size_t>(step.rows * step.outputs), list_size(longest, 256));
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (is_penalised(rows[row])) list_seen(step, row, rows[row]);
}

void set_row(Step& step, std::size_t row, const RowInput& input) {
  const auto time = static_cast<std::size_t>(step.time), count = static_cast<std::size_t>(input.row.count);
  const std::size_t first = (row + 1) * time - count;
  std::copy(input.ids.begin(), input.ids.end(), step.ids.begin() + static_cast<std::ptrdiff_t>(first));
  std::copy(input.draft.begin(), input.draft.end(),
            step.ids.begin() + static_cast<std::ptrdiff_t>(first + input.ids.size()));
  for (std::size_t i = 0; i < count; ++i)
    step.positions[first + i] = static_cast<std::int32_t>(input.row.start + static_cast<std::int64_t>(i));
  step.lengths[row] = static_cast<std::int32_t>(input.row.start + input.row.count);
  // Attention ignores the keys of a released block, but may read it: it must be a valid one.
  const auto set_table = [&](std::span<const Block> from, std::vector<std::int32_t>& to) {
    std::transform(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(row) * step.blocks,
                   [](Block block) { return block == no_block ? 0 : block; });
  };
  set_table(input.table, step.table);
  for (std::size_t group = 0; group < input.windowed.size(); ++group)
    set_table(input.windowed[group], step.windowed[group].table);
  step.carried[row] = input.carried;
  if (!step.states.empty()) step.states[row] = input.state;
  set_sampling(step.sampling, row, input);
}

}  // namespace

Step build_step(std::span<const RowInput> rows, const StepSizes& sizes, bool has_states, std::size_t windowed) {
  int time = 1, blocks = 1, outputs = 1;
  for (const RowInput& input : rows) {
    time = std::max(time, input.row.count);
    blocks = std::max(blocks, static_cast<int>(input.table.size()));
    outputs = std::max(outputs, input.row.drafts + 1);
  }
  Step step;
  step.rows = sizes.rows.size_for(static_cast<int>(rows.size()));
  step.time = sizes.time.size_for(time);
  step.blocks = sizes.blocks.size_for(blocks);
  step.outputs = outputs > 1 ? sizes.time.size_for(outputs) : 1;
  allocate(step, has_states, windowed);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    set_row(step, row, rows[row]);
    step.plan.push_back(rows[row].row);
  }
  set_biases(step, rows);
  set_seen(step, rows);
  return step;
}

}  // namespace jerboa::serving
