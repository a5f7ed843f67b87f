#include "serving/fake_model.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/random.h>
#include <jerboa/generate/sampler.h>

namespace jerboa::serving::test {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return split_mix(a * split_mix_step + b + 1); }

std::uint64_t first_key(std::int32_t token, std::int64_t position, std::uint64_t state) {
  return mix(mix(static_cast<std::uint64_t>(token), static_cast<std::uint64_t>(position)), state);
}

std::size_t index_of(int row, int columns, int column) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column);
}

std::uint64_t fold(std::span<const std::uint64_t> keys) {
  std::uint64_t sum = 0;
  for (const std::uint64_t key : keys) sum = mix(sum, key);
  return sum;
}

// The latest keys that a window covers.
std::span<const std::uint64_t> seen_of(std::span<const std::uint64_t> keys, int window) {
  return window > 0 && std::ssize(keys) > window ? keys.last(static_cast<std::size_t>(window)) : keys;
}

}  // namespace

std::uint64_t Context::push(std::int32_t token) {
  if (uses_state) state = mix(state, static_cast<std::uint64_t>(token));
  keys.resize(windows.size());
  std::uint64_t value = first_key(token, std::ssize(keys[0]), state);
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    keys[layer].push_back(value);
    value = fold(seen_of(keys[layer], windows[layer]));
  }
  return value;
}

std::vector<int> windows_of(const SchedulerOptions& options) {
  std::vector<int> windows{options.window};
  for (const WindowedLayers& layers : options.windowed) windows.push_back(layers.window);
  if (options.windowed.empty()) windows.push_back(options.window);
  return windows;
}

std::vector<float> logits_of(std::uint64_t output, std::int32_t token) {
  std::vector<float> logits(vocabulary);
  for (int i = 0; i < vocabulary; ++i)
    logits[static_cast<std::size_t>(i)] =
        static_cast<float>(mix(output, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24f;
  const auto likely =
      output % 8 != 0 ? static_cast<std::uint64_t>(token % (vocabulary - 1) + 1) : mix(output, 77) % vocabulary;
  logits[likely] += 2;
  logits[end_token] -= 1;
  return logits;
}

std::int32_t draw_token(std::vector<float> logits, float temperature, std::uint64_t seed, std::uint32_t draw,
                        std::span<const std::uint32_t> mask) {
  for (std::size_t i = 0; i < logits.size() && !mask.empty(); ++i)
    if ((mask[i / 32] >> (i % 32) & 1) == 0) logits[i] = -INFINITY;
  // A fresh sampler, since a draw depends on the seed and its number alone.
  return Sampler({.temperature = temperature, .seed = mix(seed, draw)}).sample(logits);
}

void adjust(std::span<float> logits, const SamplerOptions& options, std::span<const std::int32_t> prompt,
            std::span<const std::int32_t> generated) {
  for (const auto& [token, bias] : options.logit_bias) logits[static_cast<std::size_t>(token)] += bias;
  for (const int token : options.banned_tokens) logits[static_cast<std::size_t>(token)] = -INFINITY;
  std::vector<std::int32_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), generated.begin(), generated.end());
  const auto window = static_cast<std::size_t>(options.penalty_window);
  const std::size_t begin = window > 0 && all.size() > window ? all.size() - window : 0;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    int seen = 0, count = 0;
    for (std::size_t i = begin; i < all.size(); ++i) {
      seen += std::cmp_equal(all[i], token) ? 1 : 0;
      count += std::cmp_equal(all[i], token) && i >= prompt.size() ? 1 : 0;
    }
    float& logit = logits[token];
    if (seen > 0) logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    if (count > 0) logit -= options.presence_penalty + options.frequency_penalty * static_cast<float>(count);
  }
}

const TokenMask& NoRepetition::allowed(int) {
  mask_ = TokenMask(vocabulary);
  for (int token = 1; token < vocabulary; ++token)
    mask_.set(static_cast<std::size_t>(token), !complete() && token != last_);
  return mask_;
}

void NoRepetition::accept(int token) {
  if (!allowed(unlimited).allows(static_cast<std::size_t>(token))) throw ConstraintError("a token was repeated");
  last_ = token;
  sevens_ += token == 7 ? 1 : 0;
}

Text write_alone(std::span<const std::int32_t> prompt, const SequenceOptions& options, bool on_host,
                 std::int64_t context, bool uses_state, const std::vector<int>& windows) {
  Context model{.windows = windows, .uses_state = uses_state};
  std::uint64_t output = 0;
  std::int32_t last = 0;
  for (const std::int32_t token : prompt) output = model.push(last = token);
  std::unique_ptr<Constraint> constraint = options.constraint ? options.constraint() : nullptr;
  Constraint* const rule = constraint.get();
  std::unique_ptr<Sampler> sampler;
  if (on_host) {
    sampler = options.sampler ? options.sampler() : std::make_unique<Sampler>(options.sampling);
    sampler->constrain(std::move(constraint));
    sampler->observe(prompt);
  }
  Text text;
  for (std::uint32_t draw = 0; std::cmp_less(draw, options.max_tokens); ++draw) {
    std::vector<float> logits = logits_of(output, last);
    std::vector<std::uint32_t> mask;
    if (rule != nullptr) mask = {static_cast<std::uint32_t>(rule->allowed().words()[0])};
    if (!sampler) adjust(logits, options.sampling, prompt, text.tokens);
    last = sampler ? sampler->sample(logits, options.max_tokens - static_cast<int>(draw))
                   : draw_token(logits, options.sampling.temperature, options.sampling.seed, draw, mask);
    if (rule != nullptr && !sampler) rule->accept(last);
    if (std::find(options.end_tokens.begin(), options.end_tokens.end(), last) != options.end_tokens.end()) {
      text.reason = FinishReason::end;
      return text;
    }
    text.tokens.push_back(last);
    if (rule != nullptr && rule->complete()) {
      text.reason = FinishReason::end;
      return text;
    }
    if (std::ssize(text.tokens) < options.max_tokens && std::ssize(prompt) + std::ssize(text.tokens) > context) {
      text.reason = FinishReason::context;
      return text;
    }
    output = model.push(last);
  }
  return text;
}

FakeDevice::FakeDevice(const SchedulerOptions& options, std::uint64_t seed)
    : block_size_(options.block_size), uses_state_(options.state_slots > 0) {
  layers_.push_back({no_group, options.window, options.blocks, {}});
  for (int group = 0; group < static_cast<int>(options.windowed.size()); ++group) {
    const WindowedLayers& layers = options.windowed[static_cast<std::size_t>(group)];
    layers_.push_back({group, layers.window, layers.blocks, {}});
  }
  if (options.windowed.empty()) layers_.push_back(layers_.front());
  SplitMix random(seed);
  for (Layer& layer : layers_) {
    layer.cells.resize(index_of(layer.blocks, block_size_, 0));
    for (std::uint64_t& value : layer.cells) value = random.next();
  }
  states_.resize(static_cast<std::size_t>(options.state_slots));
  for (std::uint64_t& value : states_) value = random.next();
}

void FakeDevice::check_shapes(const Step& step) const {
  const auto rows = static_cast<std::size_t>(step.rows), time = static_cast<std::size_t>(step.time);
  ASSERT_LE(step.plan.size(), rows);
  ASSERT_LE(step.outputs, step.time);
  ASSERT_EQ(step.ids.size(), rows * time);
  ASSERT_EQ(step.positions.size(), rows * time);
  ASSERT_EQ(step.lengths.size(), rows);
  ASSERT_EQ(step.table.size(), rows * static_cast<std::size_t>(step.blocks));
  ASSERT_EQ(step.carried.size(), rows);
  ASSERT_EQ(step.states.size(), uses_state_ ? rows : 0);
  ASSERT_EQ(step.sampling.temperature.size(), rows);
  ASSERT_EQ(step.sampling.seed.size(), 2 * rows);
  for (const Layer& layer : layers_) {
    const auto& table =
        layer.group == no_group ? step.table : step.windowed.at(static_cast<std::size_t>(layer.group)).table;
    ASSERT_EQ(table.size(), step.table.size());
    for (const Block block : table) {
      ASSERT_GE(block, 0);
      ASSERT_LT(block, layer.blocks);
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t count = row < step.plan.size() ? step.plan[row].count : 0;
    for (std::size_t i = 0; i < time; ++i) {
      const std::int64_t index = static_cast<std::int64_t>(i + 1) - static_cast<std::int64_t>(time) + count - 1;
      ASSERT_EQ(step.positions[row * time + i], index < 0 ? -1 : step.plan[row].start + index);
    }
    ASSERT_EQ(step.lengths[row], count == 0 ? 0 : step.plan[row].start + count);
  }
}

std::uint64_t& FakeDevice::cell(Layer& layer, const Step& step, int row, std::int32_t position) const {
  const auto& table = layer.group == no_group ? step.table : step.windowed[static_cast<std::size_t>(layer.group)].table;
  const Block block = table.at(index_of(row, step.blocks, position / block_size_));
  return layer.cells.at(index_of(block, block_size_, position % block_size_));
}

void FakeDevice::write(Layer& layer, const Step& step, const std::vector<std::uint64_t>& values) {
  std::set<const std::uint64_t*> written;
  for (int row = 0; row < step.rows; ++row)
    for (int i = 0; i < step.time; ++i) {
      const auto at = index_of(row, step.time, i);
      if (step.positions[at] < 0) continue;
      std::uint64_t& value = cell(layer, step, row, step.positions[at]);
      EXPECT_TRUE(written.insert(&value).second) << "two rows write to one place";
      value = values[at];
    }
}

// Every query sees the keys up to its own position that its window has.
std::vector<std::uint64_t> FakeDevice::attend(Layer& layer, const Step& step) {
  std::vector<std::uint64_t> out(step.ids.size());
  for (int row = 0; row < step.rows; ++row)
    for (int i = 0; i < step.time; ++i) {
      const auto at = index_of(row, step.time, i);
      const std::int32_t seen = std::min(step.positions[at] + 1, step.lengths[static_cast<std::size_t>(row)]);
      std::vector<std::uint64_t> keys;
      const std::int32_t first = layer.window > 0 ? std::max(step.positions[at] - layer.window + 1, 0) : 0;
      for (std::int32_t position = first; position < seen; ++position) keys.push_back(cell(layer, step, row, position));
      out[at] = fold(keys);
    }
  return out;
}

// Applies the step's lists to logits; the token carried over from the last step counts as generated.
void FakeDevice::adjust_logits(std::span<float> logits, const Step& step, std::size_t row, int output) const {
  const SamplingInputs& sampling = step.sampling;
  for (int i = 0; i < sampling.bias.size; ++i) {
    const std::size_t at = index_of(static_cast<int>(row), sampling.bias.size, i);
    logits[static_cast<std::size_t>(sampling.bias.tokens[at])] += sampling.bias.values[at];
  }
  std::vector<float> seen(logits.size());
  for (int i = 0; i < sampling.seen.size; ++i) {
    const std::size_t at = index_of(static_cast<int>(row) * step.outputs + output, sampling.seen.size, i);
    seen[static_cast<std::size_t>(sampling.seen.tokens[at])] += sampling.seen.values[at];
  }
  if (step.carried[row] >= 0)
    ++seen[static_cast<std::size_t>(last_tokens_.at(static_cast<std::size_t>(step.carried[row])))];
  for (std::size_t token = 0; token < logits.size(); ++token) {
    float& logit = logits[token];
    const float penalty = sampling.repetition_penalty[row], count = std::floor(seen[token]);
    if (seen[token] > 0) logit = logit > 0 ? logit / penalty : logit * penalty;
    if (count > 0) logit -= sampling.presence_penalty[row] + sampling.frequency_penalty[row] * count;
  }
}

void FakeDevice::submit(const Step& step) {
  ASSERT_NO_FATAL_FAILURE(check_shapes(step));
  for (const SlotCopy& copy : step.state_copies)
    states_.at(static_cast<std::size_t>(copy.to)) = states_.at(static_cast<std::size_t>(copy.from));
  for (const BlockCopy& copy : step.copies) write_block(copy.to, read_block(copy.from));
  for (int group = 0; group < static_cast<int>(step.windowed.size()); ++group)
    for (const BlockCopy& copy : step.windowed[static_cast<std::size_t>(group)].copies)
      write_block(copy.to, read_block(copy.from, group), group);

  std::vector<std::int32_t> ids = step.ids;
  std::vector<std::uint64_t> keys(ids.size());
  for (int row = 0; row < step.rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (step.carried[r] >= 0)
      ids[index_of(row, step.time, step.time - 1)] = last_tokens_.at(static_cast<std::size_t>(step.carried[r]));
    for (int i = 0; i < step.time; ++i) {
      const auto at = index_of(row, step.time, i);
      if (step.positions[at] < 0) continue;
      std::uint64_t state = 0;
      if (uses_state_) {
        std::uint64_t& slot = states_.at(static_cast<std::size_t>(step.states[r]));
        if (step.positions[at] == 0) slot = 0;  // a text that begins finds zeros
        state = slot = mix(slot, static_cast<std::uint64_t>(ids[at]));
      }
      keys[at] = first_key(ids[at], step.positions[at], state);
    }
  }
  for (Layer& layer : layers_) {
    write(layer, step, keys);
    keys = attend(layer, step);
  }
  const std::vector<std::uint64_t>& out = keys;

  StepResults results;
  results.tokens.assign(index_of(step.rows, step.outputs, 0), -1);
  results.logprobs.assign(results.tokens.size(), 0);
  results.likeliest.assign(3 * results.tokens.size(), 0);
  results.likeliest_logprobs.assign(3 * results.tokens.size(), 0);
  results.logits.resize(step.plan.size());
  std::vector<std::int32_t> last_tokens(static_cast<std::size_t>(step.rows), -1);
  for (std::size_t row = 0; row < step.plan.size(); ++row)
    for (int output = 0; output < step.outputs; ++output) {
      const std::size_t at =
          (row + 1) * static_cast<std::size_t>(step.time) - static_cast<std::size_t>(step.outputs - output);
      const SamplingInputs& sampling = step.sampling;
      if (step.plan[row].wanted == Wanted::logits) {
        const std::vector<float> logits = logits_of(out[at], ids[at]);
        results.logits[row].insert(results.logits[row].end(), logits.begin(), logits.end());
      } else if (step.plan[row].wanted == Wanted::token && output >= step.outputs - 1 - step.plan[row].drafts) {
        const std::uint64_t seed = sampling.seed[2 * row] | std::uint64_t{sampling.seed[2 * row + 1]} << 32;
        const int index = output - (step.outputs - 1 - step.plan[row].drafts);
        const std::size_t words = step.mask.size() / static_cast<std::size_t>(step.rows);
        std::vector<float> logits = logits_of(out[at], ids[at]);
        adjust_logits(logits, step, row, output);
        last_tokens[row] = draw_token(std::move(logits), sampling.temperature[row], seed,
                                      sampling.draw[row] + static_cast<std::uint32_t>(index),
                                      std::span(step.mask).subspan(row * words, words));
        const std::size_t place = row * static_cast<std::size_t>(step.outputs) + static_cast<std::size_t>(output);
        results.tokens[place] = last_tokens[row];
        // In place of log-probabilities, what tells one token's from another's.
        results.logprobs[place] = static_cast<float>(last_tokens[row]);
        for (std::size_t i = 0; i < 3; ++i) results.likeliest[3 * place + i] = last_tokens[row];
      }
    }
  last_tokens_ = std::move(last_tokens);
  results_.push_back(std::move(results));
}

StepResults FakeDevice::wait() {
  StepResults out = std::move(results_.front());
  results_.pop_front();
  return out;
}

std::vector<std::uint64_t> FakeDevice::read_block(Block block, int group) const {
  std::vector<std::uint64_t> out;
  for (const Layer& layer : layers_)
    for (int i = 0; layer.group == group && i < block_size_; ++i)
      out.push_back(layer.cells[index_of(block, block_size_, i)]);
  return out;
}

void FakeDevice::write_block(Block block, std::span<const std::uint64_t> content, int group) {
  std::size_t next = 0;
  for (Layer& layer : layers_)
    for (int i = 0; layer.group == group && i < block_size_; ++i)
      layer.cells[index_of(block, block_size_, i)] = content[next++];
}

}  // namespace jerboa::serving::test
