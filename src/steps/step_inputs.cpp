#include "steps/step_inputs.h"

#include <algorithm>

namespace jerboa::language {
namespace {

HostTensor floats(Sizes shape, std::span<const float> values) { return {std::move(shape), values}; }
HostTensor words(Sizes shape, std::span<const std::uint32_t> values) {
  HostTensor out(DType::u32, std::move(shape));
  std::copy(values.begin(), values.end(), out.as<std::uint32_t>().begin());
  return out;
}

// The number of the draw of each output: a row's last outputs are one after each of its drafted tokens.
std::vector<std::uint32_t> draw_numbers(const serving::Step& step) {
  const auto outputs = static_cast<std::size_t>(step.outputs);
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(step.rows) * outputs);
  for (std::size_t row = 0; row < step.plan.size(); ++row) {
    const std::size_t first = outputs - 1 - static_cast<std::size_t>(step.plan[row].drafts);
    for (std::size_t i = first; i < outputs; ++i)
      numbers[row * outputs + i] = step.sampling.draw[row] + static_cast<std::uint32_t>(i - first);
  }
  return numbers;
}

}  // namespace

HostTensor integers(Sizes shape, std::span<const std::int32_t> values) { return {std::move(shape), values}; }

Drawing drawing_of(const serving::Step& step) {
  Drawing drawing = Drawing::none;
  for (std::size_t row = 0; row < step.plan.size(); ++row) {
    if (step.plan[row].wanted != serving::Wanted::token) continue;
    if (step.sampling.temperature[row] > 0) return Drawing::sampled;
    drawing = Drawing::greedy;
  }
  return drawing;
}

RunInputs inputs_of(const serving::Step& step, const EntryKey& key, bool carries, std::int32_t padding_slot) {
  const std::int64_t rows = step.rows, time = step.time;
  RunInputs inputs{{"ids", integers({rows, time}, step.ids)},
                   {"positions", integers({rows, time}, step.positions)},
                   {"lengths", integers({rows}, step.lengths)},
                   {"table", integers({rows, step.blocks}, step.table)}};
  if (!step.states.empty()) {
    std::vector<std::int32_t> slots = step.states;
    std::replace(slots.begin(), slots.end(), serving::no_slot, padding_slot);
    inputs.emplace("slots", integers({rows}, slots));
  }
  if (carries) inputs.emplace("carried", integers({rows}, step.carried));
  if (key.masked) inputs.emplace("mask", words({rows, std::ssize(step.mask) / rows}, step.mask));
  if (key.drawing != Drawing::sampled) return inputs;
  const serving::SamplingInputs& sampling = step.sampling;
  inputs.emplace("temperature", floats({rows}, sampling.temperature));
  inputs.emplace("top_k", integers({rows}, sampling.top_k));
  inputs.emplace("top_p", floats({rows}, sampling.top_p));
  inputs.emplace("min_p", floats({rows}, sampling.min_p));
  inputs.emplace("seed", words({rows, 2}, sampling.seed));
  inputs.emplace("draw", words({rows, step.outputs}, draw_numbers(step)));
  return inputs;
}

bool wants_logits(const serving::Step& step) {
  return std::any_of(step.plan.begin(), step.plan.end(),
                     [](const serving::Row& row) { return row.wanted == serving::Wanted::logits; });
}

serving::StepResults results_of(const serving::Step& step, std::span<const std::int32_t> tokens,
                                std::span<const float> logits) {
  serving::StepResults results;
  results.tokens.assign(tokens.begin(), tokens.end());
  if (!wants_logits(step)) return results;
  const std::size_t size = logits.size() / static_cast<std::size_t>(step.rows);
  results.logits.resize(step.plan.size());
  for (std::size_t row = 0; row < step.plan.size(); ++row)
    if (step.plan[row].wanted == serving::Wanted::logits) {
      const auto values = logits.subspan(row * size, size);
      results.logits[row].assign(values.begin(), values.end());
    }
  return results;
}

}  // namespace jerboa::language
