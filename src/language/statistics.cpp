#include <algorithm>
#include <fmt/format.h>

#include "language/statistics_collector.h"

namespace jerboa::language {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

void StatisticsCollector::add_step(const serving::Step& step, int dispatches, double start, double end) {
  // Steps in flight overlap; count the overlap once.
  statistics_.seconds += std::max(0.0, end - std::max(start, busy_until_));
  busy_until_ = std::max(busy_until_, end);
  statistics_.dispatches += dispatches;
  if (step.kind == serving::StepKind::decode) ++statistics_.decode_batch[static_cast<int>(step.plan.size())];
}

void StatisticsCollector::add_text(const serving::SequenceStatistics& text) {
  statistics_.generated += text.tokens;
  if (!text.first_token) return;
  const double waited = *text.first_token - text.arrived;
  ++statistics_.texts;
  statistics_.first_token_seconds +=
      (waited - statistics_.first_token_seconds) / static_cast<double>(statistics_.texts);
  statistics_.longest_first_token_seconds = std::max(statistics_.longest_first_token_seconds, waited);
}

double Statistics::mean_batch() const {
  std::int64_t rows = 0, batches = 0;
  for (const auto& [size, count] : decode_batch) {
    rows += size * count;
    batches += count;
  }
  return share(rows, batches);
}

double Statistics::cache_usage() const {
  double largest = share(used_blocks - cached_blocks, cache_blocks);
  for (const WindowedStatistics& layers : windowed)
    largest = std::max(largest, share(layers.used - layers.cached, layers.blocks));
  return largest;
}

double Statistics::hit_rate() const { return share(reused, prompt_tokens); }

double Statistics::acceptance() const { return share(accepted, drafted); }

double Statistics::dispatches_per_token() const { return share(dispatches, generated); }

std::string print(const Statistics& s) {
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string text;
  text += fmt::format("texts       {} ended, {} refused, {} preemptions\n", s.ended, s.refused, s.preempted);
  text += fmt::format("first token {:.3f} s on average, {:.3f} s at most\n", s.first_token_seconds,
                      s.longest_first_token_seconds);
  text += fmt::format("tokens      {} generated in {:.3f} s, {:.1f} tokens/s\n", s.generated, s.seconds,
                      s.tokens_per_second());
  text += fmt::format("steps       {}, {:.2f} rows per decode step, {:.1f} % padding, {:.1f} dispatches per token\n",
                      s.steps, s.mean_batch(), 100 * share(s.padding, s.padding + s.tokens), s.dispatches_per_token());
  text += fmt::format("prompts     {} tokens, {:.1f} % of them in the cache\n", s.prompt_tokens, 100 * s.hit_rate());
  text += fmt::format("drafts      {} tokens, {:.1f} % of them accepted\n", s.drafted, 100 * s.acceptance());
  text += fmt::format("cache       {} of {} blocks in use, {} kept for reuse, {} at most, {} evicted\n", s.used_blocks,
                      s.cache_blocks, s.cached_blocks, s.peak_blocks, s.evictions);
  for (const WindowedStatistics& layers : s.windowed)
    text += fmt::format("windows     {} of {} blocks of window {} in use, {} kept for reuse, {} at most, {} evicted\n",
                        layers.used, layers.blocks, layers.window, layers.cached, layers.peak, layers.evictions);
  text += fmt::format("memory      {:.1f} MiB of weights, {:.1f} of cache, {:.1f} of activations\n",
                      mib(s.weight_bytes), mib(s.cache_bytes), mib(s.activation_bytes));
  return text;
}

}  // namespace jerboa::language
