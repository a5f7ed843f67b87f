#include <algorithm>
#include <cmath>
#include <exception>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/scheduler.h>

#include "serving/step_builder.h"

// The calls of hosts, and the completion of steps. Admission, planning and saving are in separate files.
namespace jerboa::serving {
namespace {

void require(bool holds, const char* option, std::int64_t value, const char* wanted) {
  if (!holds) throw UsageError(fmt::format("scheduler: {} is {}, but must be {}", option, value, wanted));
}

SchedulerOptions checked(SchedulerOptions options) {
  require(options.blocks > 0, "blocks", options.blocks, "positive");
  require(options.block_size > 0, "block_size", options.block_size, "positive");
  require(options.context >= 0, "context", options.context, "0 or more");
  require(options.max_rows > 0, "max_rows", options.max_rows, "positive");
  require(options.chunk > 0, "chunk", options.chunk, "positive");
  require(options.prefill_tokens > 0, "prefill_tokens", options.prefill_tokens, "positive");
  require(options.mixed_time >= 0 && options.mixed_time <= options.chunk, "mixed_time", options.mixed_time,
          "from 0 to chunk");
  if (options.always_mixed)
    require(options.mixed_time > 0, "mixed_time", options.mixed_time, "positive for always_mixed");
  require(options.prefill_cells >= 0, "prefill_cells", options.prefill_cells, "0 or more");
  require(options.vocabulary >= 0, "vocabulary", options.vocabulary, "0 or more");
  if (options.device_masks) require(options.vocabulary > 0, "vocabulary", options.vocabulary, "given for device_masks");
  require(options.window >= 0, "window", options.window, "0 or more");
  require(options.state_slots >= 0, "state_slots", options.state_slots, "0 or more");
  const bool has_windows = options.window > 0 || !options.windowed.empty();
  if (has_windows) require(options.state_slots == 0, "state_slots", options.state_slots, "0 with a window");
  for (const WindowedLayers& layers : options.windowed) {
    require(layers.window > 0, "windowed.window", layers.window, "positive");
    require(layers.blocks > 0, "windowed.blocks", layers.blocks, "positive");
  }
  return options;
}

WindowedPools pools_of(const SchedulerOptions& options) {
  WindowedPools pools;
  for (const WindowedLayers& layers : options.windowed)
    pools.push_back(std::make_unique<WindowedPool>(layers.window, layers.blocks, options.block_size));
  return pools;
}

// The longest text that the cache can hold when it runs alone.
std::int64_t context_of(const SchedulerOptions& options) {
  std::int64_t blocks = options.blocks;
  for (const WindowedLayers& layers : options.windowed)
    if (layers.blocks < most_windowed_blocks(options, layers.window))
      blocks = std::min<std::int64_t>(blocks, layers.blocks);
  const std::int64_t capacity = blocks * options.block_size;
  return options.context > 0 ? std::min<std::int64_t>(options.context, capacity) : capacity;
}

bool needs_host(const SequenceOptions& sequence, const SchedulerOptions& options) {
  const SamplerOptions& sampling = sequence.sampling;
  const bool bans = !sampling.banned_tokens.empty();
  const bool adjusts = penalises(sampling) || !sampling.logit_bias.empty() || bans;
  return sequence.sampler || !options.device_samples || (adjusts && !options.device_penalises) ||
         sampling.typical_p < 1 || (sequence.constraint && (!options.device_masks || bans));
}

}  // namespace

// The blocks that the window sees from the end of the last whole block, those that steps in flight add, and partial
// ones.
int most_windowed_blocks(const SchedulerOptions& options, int window, std::int64_t in_flight) {
  return static_cast<int>((window + in_flight + options.block_size - 2) / options.block_size + 2);
}

int most_windowed_blocks(const SchedulerOptions& options, int window) {
  return most_windowed_blocks(options, window, std::int64_t{options.pipelined ? 2 : 1} * options.chunk);
}

Scheduler::Scheduler(SchedulerOptions options)
    : options_(checked(std::move(options))),
      context_(context_of(options_)),
      pool_(options_.blocks, options_.block_size),
      windowed_(pools_of(options_)),
      slots_(options_.state_slots),
      tree_(pool_, options_.state_slots > 0, &windowed_),
      sizes_(std::make_unique<StepSizes>(
          StepSizes{{options_.row_buckets, options_.max_rows, "row_buckets"},
                    {options_.time_buckets, options_.chunk, "time_buckets"},
                    {options_.block_buckets, pool_.blocks_for(context_), "block_buckets"}})),
      windowed_copies_(windowed_.size()) {}

Scheduler::~Scheduler() = default;

void Scheduler::check_tokens(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens) {
    if (token < 0) throw UsageError(fmt::format("there is no token {}", token));
    if (options_.vocabulary > 0 && token >= options_.vocabulary)
      throw UsageError(fmt::format("there is no token {}; the model has {}", token, options_.vocabulary));
  }
}

void Scheduler::check(std::span<const std::int32_t> prompt, const SequenceOptions& options) const {
  if (prompt.empty()) throw UsageError("a sequence needs at least one token to begin with");
  if (std::ssize(prompt) > context_)
    throw UsageError(
        fmt::format("{} tokens exceed the context of {}; shorten the text, or load the model with a larger "
                    "context or cache (now {} blocks of {} tokens)",
                    prompt.size(), context_, pool_.blocks(), pool_.block_size()));
  check_tokens(prompt);
  require(options.max_tokens > 0, "max_tokens", options.max_tokens, "positive");
  require(options.drafts >= 0, "drafts", options.drafts, "0 or more");
  const auto check_named = [&](int token, const char* option) {
    if (token < 0 || (options_.vocabulary > 0 && token >= options_.vocabulary))
      throw UsageError(
          fmt::format("sampler: {} names token {}, but there are {} tokens", option, token, options_.vocabulary));
  };
  for (const auto& [token, bias] : options.sampling.logit_bias) check_named(token, "logit_bias");
  for (const int token : options.sampling.banned_tokens) check_named(token, "banned_tokens");
  if (options.logprobs)
    require(0 <= *options.logprobs && *options.logprobs <= most_logprobs, "logprobs", *options.logprobs,
            "from 0 to 20");
  if (std::isnan(options.deadline)) throw UsageError("scheduler: the deadline is not a number");
  if (!options.stop.empty() && !options.text)
    throw UsageError("stop strings need a text stream, which turns tokens into text");
}

SequenceId Scheduler::insert(std::vector<std::int32_t> prompt, SequenceOptions options, double now) {
  const SequenceId id = next_id_;
  try {
    check(prompt, options);
    const Sampler valid(options.sampling);  // throws if a setting is out of range, wherever it is sampled
    const bool on_host = needs_host(options, options_);
    Sequence sequence(id, std::move(prompt), std::move(options), on_host, now, new_place());
    sequences_.try_emplace(id, std::move(sequence));
  } catch (...) {
    ++statistics_.refused;
    throw;
  }
  ++next_id_;
  ++statistics_.added;
  waiting_.insert(id);
  if (const double deadline = at(id).options().deadline; std::isfinite(deadline)) deadlines_.insert({deadline, id});
  return id;
}

SequenceId Scheduler::add(std::vector<std::int32_t> prompt, SequenceOptions options, double now) {
  return insert(std::move(prompt), std::move(options), now);
}

SequenceId Scheduler::fork(SequenceId id, SequenceOptions options, double now) {
  const Sequence* parent = find(id);
  if (parent == nullptr) throw UsageError(fmt::format("there is no sequence {} to fork: it has ended", id));
  const SequenceId child = insert({parent->tokens().begin(), parent->tokens().end()}, std::move(options), now);
  if (at(child).options().name_space == parent->options().name_space) at(child).parent = id;
  return child;
}

bool Scheduler::cancel(SequenceId id, double now) {
  if (find(id) == nullptr) return false;
  finish(at(id), FinishReason::cancelled, now);
  return true;
}

std::vector<SequenceId> Scheduler::awaiting_drafts() const {
  std::vector<SequenceId> out;
  for (const SequenceId id : running_)
    if (find(id)->awaits_draft()) out.push_back(id);
  return out;
}

void Scheduler::suggest(SequenceId id, std::vector<std::int32_t> draft) {
  const Sequence* sequence = find(id);
  if (sequence == nullptr || !sequence->awaits_draft())
    throw UsageError(fmt::format("sequence {} does not await a draft", id));
  check_tokens(draft);
  at(id).suggest(std::move(draft));
}

void Scheduler::draft_by_lookup() {
  for (auto& [id, sequence] : sequences_) sequence.draft_by_lookup();
}

const Sequence* Scheduler::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

Sequence& Scheduler::at(SequenceId id) { return sequences_.at(id); }

void Scheduler::expire(double now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now)
    finish(at(deadlines_.begin()->second), FinishReason::deadline, now);
}

// Releases everything that the sequence holds; results of its rows that are still in flight are ignored.
void Scheduler::finish(Sequence& sequence, FinishReason reason, double now, Event event) {
  event.id = sequence.id();
  event.finished = reason;
  event.text += sequence.finish_text();
  sequence.count().finished = now;
  event.statistics = sequence.statistics();
  events_.push_back(std::move(event));
  ++statistics_.finished;
  running_.erase(sequence.id());
  waiting_.erase(sequence.id());
  deadlines_.erase({sequence.options().deadline, sequence.id()});
  sequences_.erase(sequence.id());
}

const Scheduler::InFlight& Scheduler::oldest_in_flight(const Step& step) const {
  if (in_flight_.empty() || in_flight_.front().number != step.number)
    throw UsageError(
        fmt::format("step {} is not the oldest in flight; steps complete in the order in which they were "
                    "issued, and once",
                    step.number));
  return in_flight_.front();
}

Scheduler::InFlight Scheduler::take_in_flight() {
  InFlight out = std::move(in_flight_.front());
  in_flight_.pop_front();
  return out;
}

void Scheduler::check_results(const InFlight& issued, const StepResults& results) {
  const auto outputs = static_cast<std::size_t>(issued.outputs);
  for (std::size_t row = 0; row < issued.rows.size(); ++row) {
    const Wanted wanted = issued.rows[row].row.wanted;
    if (wanted == Wanted::token && results.tokens.size() < (row + 1) * outputs)
      throw UsageError(fmt::format("the results of step {} hold {} tokens, but must hold {} for each of {} rows",
                                   issued.number, results.tokens.size(), outputs, issued.rows.size()));
    const bool lists = issued.rows[row].row.logprobs.value_or(0) > 0;
    if (issued.rows[row].row.logprobs && (results.logprobs.size() < (row + 1) * outputs ||
                                          (lists && results.likeliest.size() < results.logprobs.size()) ||
                                          results.likeliest_logprobs.size() < results.likeliest.size()))
      throw UsageError(fmt::format("the results of step {} hold no log-probabilities for row {}", issued.number, row));
    const std::size_t logits = row < results.logits.size() ? results.logits[row].size() : 0;
    if (wanted == Wanted::logits && (logits == 0 || logits % outputs != 0))
      throw UsageError(fmt::format("the results of step {} hold {} logits for row {}, but must hold {} for each token",
                                   issued.number, logits, row, outputs));
  }
}

std::vector<Event> Scheduler::complete(const Step& step, StepResults results, double now) {
  check_results(oldest_in_flight(step), results);
  const InFlight done = take_in_flight();
  std::exception_ptr unknown;
  for (std::size_t row = 0; row < done.rows.size(); ++row) try {
      settle(done.rows[row], row, done.outputs, results, now);
    } catch (...) {  // the other rows still count
      unknown = std::current_exception();
    }
  expire(now);
  if (unknown) std::rethrow_exception(unknown);
  return take_events();
}

std::vector<Event> Scheduler::fail(const Step& step, const std::string& error, double now) {
  oldest_in_flight(step);
  const InFlight done = take_in_flight();
  for (const Planned& planned : done.rows)
    if (find(planned.row.id) != nullptr) finish(at(planned.row.id), FinishReason::failed, now, {.error = error});
  forget_cache();
  return take_events();
}

std::vector<Event> Scheduler::refuse(const Step& step, const std::string& error, double now) {
  oldest_in_flight(step);
  const InFlight done = take_in_flight();
  SequenceId youngest = 0;
  for (const Planned& planned : done.rows) {
    if (find(planned.row.id) == nullptr) continue;
    youngest = std::max(youngest, planned.row.id);
    withdraw(planned);
    for (InFlight& later : in_flight_)  // rows that follow from the step's token
      for (Planned& row : later.rows)
        if (row.row.id == planned.row.id) withdraw(std::exchange(row, {}));
  }
  if (youngest != 0) finish(at(youngest), FinishReason::failed, now, {.error = error});
  forget_cache();
  return take_events();
}

// Marks that the row's result will not arrive.
void Scheduler::withdraw(const Planned& planned) {
  if (planned.row.wanted != Wanted::nothing) --at(planned.row.id).pending;
}

// A failed step may not have made its copies either, so nothing in the cache can be relied on.
void Scheduler::forget_cache() {
  while (!running_.empty()) preempt(at(*running_.begin()));
  tree_.clear();
}

// The token that a row's result provides for one of its outputs.
std::int32_t Scheduler::token_of(Sequence& sequence, const Planned& planned, std::size_t row, int output, int outputs,
                                 StepResults& results) {
  if (planned.row.wanted == Wanted::token)
    return results.tokens[row * static_cast<std::size_t>(outputs) + static_cast<std::size_t>(output)];
  std::vector<float>& logits = results.logits[row];
  const std::size_t size = logits.size() / static_cast<std::size_t>(outputs);
  return sequence.sample(std::span(logits).subspan(static_cast<std::size_t>(output) * size, size));
}

TokenLogprobs Scheduler::logprobs_of(const Sequence& sequence, const Planned& planned, std::size_t row, int output,
                                     int outputs, const StepResults& results) {
  if (planned.row.wanted == Wanted::logits) return sequence.sampled_logprobs();
  const std::size_t at = row * static_cast<std::size_t>(outputs) + static_cast<std::size_t>(output);
  TokenLogprobs out{results.logprobs[at]};
  const std::size_t listed = results.likeliest.size() / results.logprobs.size();
  const std::size_t count = std::min(listed, static_cast<std::size_t>(*planned.row.logprobs));
  for (std::size_t i = at * listed; i < at * listed + count; ++i)
    out.likeliest.emplace_back(results.likeliest[i], results.likeliest_logprobs[i]);
  return out;
}

void Scheduler::settle(const Planned& planned, std::size_t row, int outputs, StepResults& results, double now) {
  if (find(planned.row.id) == nullptr) return;
  Sequence& sequence = at(planned.row.id);
  const bool is_placed = planned.epoch == sequence.epoch;  // not preempted since
  if (is_placed) sequence.place.written = planned.row.start + planned.row.count - planned.row.drafts;
  if (planned.row.wanted == Wanted::nothing) {
    if (is_placed) publish(sequence);
    if (is_placed) release_passed(sequence);
    return;
  }
  --sequence.pending;
  int accepted = 0;
  for (;; ++accepted) {
    Event event{.id = sequence.id()};
    std::int32_t token = 0;
    Sequence::Outcome outcome;
    const int output = outputs - planned.row.drafts - 1 + accepted;
    try {
      token = token_of(sequence, planned, row, output, outputs, results);
      outcome = sequence.accept(token, context_, now);
    } catch (const std::exception& error) {
      event.error = error.what();
      return finish(sequence, FinishReason::failed, now, std::move(event));
    } catch (...) {  // a caller's processor may throw anything
      event.error = "its sampler threw something that is not an exception";
      finish(sequence, FinishReason::failed, now, std::move(event));
      throw;
    }
    if (outcome.kept) event.token = token;
    if (outcome.kept && sequence.options().logprobs)
      event.logprobs = logprobs_of(sequence, planned, row, output, outputs, results);
    event.text = std::move(outcome.text);
    const bool agrees = accepted < planned.row.drafts && planned.draft[static_cast<std::size_t>(accepted)] == token;
    if (outcome.finished) {
      if (is_placed) publish(sequence);
      count_drafts(sequence, planned.row.drafts, accepted + (agrees ? 1 : 0));
      return finish(sequence, *outcome.finished, now, std::move(event));
    }
    events_.push_back(std::move(event));
    if (!agrees) break;
  }
  count_drafts(sequence, planned.row.drafts, accepted);
  if (!is_placed) return;
  if (planned.row.drafts > 0) keep_accepted(sequence, planned, accepted);
  publish(sequence);
  release_passed(sequence);
}

void Scheduler::count_drafts(Sequence& sequence, int drafted, int accepted) {
  sequence.count_drafts(drafted, accepted);
  statistics_.drafted += drafted;
  statistics_.accepted += accepted;
}

// Drops what was computed from failed guesses. States cannot be truncated: they go back to before the row, and the
// tokens since then are recomputed.
void Scheduler::keep_accepted(Sequence& sequence, const Planned& planned, int accepted) {
  CachePlace& place = sequence.place;
  std::int64_t kept = planned.row.start + planned.row.count - planned.row.drafts + accepted;
  if (place.states) {
    if (accepted < planned.row.drafts) kept = *place.states->rewind(kept, state_copies_);
    place.states->forget_snapshots();
  }
  place.computed = place.written = kept;
  place.table.truncate(kept);
  for (PageTable& table : place.windowed) table.truncate(kept);
}

// Puts the whole blocks that are written, and whose tokens are final, into the prefix tree.
void Scheduler::publish(Sequence& sequence) {
  CachePlace& place = sequence.place;
  if (!place.path) return;
  const auto size = static_cast<std::size_t>(pool_.block_size());
  const auto known = static_cast<std::size_t>(std::min(place.written, sequence.length()));
  for (auto index = static_cast<std::size_t>(place.path.size()); (index + 1) * size <= known; ++index) {
    const Block block = place.table.blocks()[index];
    std::vector<Block> windowed;
    for (const PageTable& table : place.windowed) windowed.push_back(table.blocks()[index]);
    const Block shared = tree_.append(place.path, sequence.tokens().subspan(index * size, size), block, windowed);
    if (shared != block) place.table.replace(index, shared);
    for (std::size_t group = 0; group < windowed.size(); ++group) {
      const Block kept = place.path.last_windowed(group);
      if (windowed[group] != no_block && kept != windowed[group]) place.windowed[group].replace(index, kept);
    }
    if (std::cmp_equal((index + 1) * size, (sequence.prompt_tokens() - 1) / pool_.block_size() * pool_.block_size()))
      tree_.keep_end(place.path);
    if (place.snapshot && place.snapshot_at == static_cast<std::int64_t>((index + 1) * size))
      tree_.keep_state(place.path, std::move(place.snapshot));
  }
}

}  // namespace jerboa::serving
