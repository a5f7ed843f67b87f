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

// The draw number of each output: a row's last outputs follow each of its drafted tokens.
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

Logprobs logprobs_of(const serving::Step& step) {
  Logprobs most = Logprobs::none;
  for (const serving::Row& row : step.plan)
    if (row.logprobs) most = std::max(most, *row.logprobs > 0 ? Logprobs::listed : Logprobs::drawn);
  return most;
}

RunInputs inputs_of(const serving::Step& step, const EntryKey& key, bool carries, std::int32_t padding_slot,
                    std::span<const models::WindowedBlocks> windowed) {
  const std::int64_t rows = step.rows, time = step.time;
  RunInputs inputs{{"ids", integers({rows, time}, step.ids)},
                   {"positions", integers({rows, time}, step.positions)},
                   {"lengths", integers({rows}, step.lengths)},
                   {"table", integers({rows, step.blocks}, step.table)}};
  for (std::size_t group = 0; group < windowed.size(); ++group)
    inputs.emplace(models::table_name(windowed[group].window),
                   integers({rows, step.blocks}, step.windowed[group].table));
  if (!step.states.empty()) {
    std::vector<std::int32_t> slots = step.states;
    std::replace(slots.begin(), slots.end(), serving::no_slot, padding_slot);
    inputs.emplace("slots", integers({rows}, slots));
  }
  if (carries) inputs.emplace("carried", integers({rows}, step.carried));
  if (key.masked) inputs.emplace("mask", words({rows, std::ssize(step.mask) / rows}, step.mask));
  const serving::SamplingInputs& sampling = step.sampling;
  if (key.biased > 0) {
    inputs.emplace("biased_tokens", integers({rows, key.biased}, sampling.bias.tokens));
    inputs.emplace("bias", floats({rows, key.biased}, sampling.bias.values));
  }
  if (key.penalised > 0) {
    inputs.emplace("seen_tokens", integers({rows, step.outputs, key.penalised}, sampling.seen.tokens));
    inputs.emplace("seen", floats({rows, step.outputs, key.penalised}, sampling.seen.values));
    inputs.emplace("repetition_penalty", floats({rows}, sampling.repetition_penalty));
    inputs.emplace("presence_penalty", floats({rows}, sampling.presence_penalty));
    inputs.emplace("frequency_penalty", floats({rows}, sampling.frequency_penalty));
  }
  if (key.drawing != Drawing::sampled) return inputs;
  inputs.emplace("temperature", floats({rows}, sampling.temperature));
  inputs.emplace("top_k", integers({rows}, sampling.top_k));
  inputs.emplace("top_p", floats({rows}, sampling.top_p));
  inputs.emplace("min_p", floats({rows}, sampling.min_p));
  inputs.emplace("seed", words({rows, 2}, sampling.seed));
  inputs.emplace("draw", words({rows, step.outputs}, draw_numbers(step)));
  return inputs;
}

std::vector<std::string> outputs_to_read(const serving::Step& step, const EntryKey& key) {
  std::vector<std::string> names;
  if (key.drawing != Drawing::none) names.emplace_back("tokens");
  if (key.logprobs != Logprobs::none) names.emplace_back("logprobs");
  if (key.logprobs == Logprobs::listed) names.insert(names.end(), {"likeliest", "likeliest_logprobs"});
  const auto is_drawn_on_host = [](const serving::Row& row) { return row.wanted == serving::Wanted::logits; };
  if (std::any_of(step.plan.begin(), step.plan.end(), is_drawn_on_host)) names.emplace_back("logits");
  return names;
}

DType result_type(std::string_view output) {
  return output == "tokens" || output == "likeliest" ? DType::i32 : DType::f32;
}

serving::StepResults results_of(const serving::Step& step, const std::map<std::string, HostTensor>& outputs) {
  serving::StepResults results;
  const auto copy = [&]<class T>(const char* name, std::vector<T>& to) {
    if (const auto found = outputs.find(name); found != outputs.end())
      to.assign(found->second.as<T>().begin(), found->second.as<T>().end());
  };
  copy("tokens", results.tokens);
  copy("logprobs", results.logprobs);
  copy("likeliest", results.likeliest);
  copy("likeliest_logprobs", results.likeliest_logprobs);
  const auto found = outputs.find("logits");
  if (found == outputs.end()) return results;
  const std::span<const float> logits = found->second.f32();
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
