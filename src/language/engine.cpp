#include "language/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <limits>

#include <jerboa/base/error.h>

#include "base/clock.h"
#include "steps/text_options.h"

namespace jerboa::language {
namespace {

StopReason reason_of(serving::FinishReason reason) {
  switch (reason) {
    case serving::FinishReason::end: return StopReason::end;
    case serving::FinishReason::length: return StopReason::length;
    case serving::FinishReason::stop: return StopReason::stop;
    case serving::FinishReason::context: return StopReason::context;
    case serving::FinishReason::deadline: return StopReason::deadline;
    case serving::FinishReason::cancelled: return StopReason::cancelled;
    case serving::FinishReason::failed: return StopReason::failed;
  }
  return StopReason::failed;
}

}  // namespace

Engine::Engine(std::shared_ptr<Model> model) : model_(std::move(model)), scheduler_(model_->scheduling()) {
  model_->acquire_cache();
}

Engine::~Engine() { model_->release_cache(); }

serving::SequenceOptions Engine::sequence_options(const GenerateOptions& options, double now) const {
  const TextModel model{.tokenizer = model_->tokenizer(),
                        .end_tokens = model_->end_tokens(),
                        .recommended_sampling = model_->recommended_sampling(),
                        .samples_on_device = model_->samples_on_device(),
                        .is_deterministic = model_->is_deterministic(),
                        .vocabulary = [this] { return model_->vocabulary(); }};
  serving::SequenceOptions out = language::sequence_options(model,
                                                            {.max_tokens = options.max_tokens,
                                                             .sampling = options.sampling,
                                                             .stop = options.stop,
                                                             .grammar = options.grammar,
                                                             .seconds = options.seconds,
                                                             .drafts = options.drafts,
                                                             .sampler = options.sampler},
                                                            now);
  out.logprobs = options.logprobs;
  return out;
}

void Engine::draft_by(serving::SequenceOptions& options) const {
  if (drafter_) options.draft_source = serving::DraftSource::host;
}

Stream Engine::add_stream(serving::SequenceId id, const GenerateOptions& options, double now) {
  auto state = std::make_shared<StreamState>(StreamState{.id = id, .arrived = now, .on_token = options.on_token});
  state->result.prompt_tokens = scheduler_.find(id)->prompt_tokens();
  streams_.emplace(id, state);
  note_change();
  return {shared_from_this(), std::move(state)};
}

Stream Engine::submit(std::vector<std::int32_t> prompt, const GenerateOptions& options) {
  model_->check_tokens(prompt);
  const double now = detail::steady_seconds();
  serving::SequenceOptions sequence = sequence_options(options, now);
  const Lock lock(mutex_);
  draft_by(sequence);
  return add_stream(scheduler_.add(std::move(prompt), std::move(sequence), now), options, now);
}

Stream Engine::fork(const StreamState& parent, const GenerateOptions& options) {
  const double now = detail::steady_seconds();
  serving::SequenceOptions sequence = sequence_options(options, now);
  const Lock lock(mutex_);
  draft_by(sequence);
  return add_stream(scheduler_.fork(parent.id, std::move(sequence), now), options, now);
}

std::optional<TextPiece> Engine::take(StreamState& state) {
  const Lock lock(mutex_);
  if (state.pieces.empty()) return std::nullopt;
  TextPiece piece = std::move(state.pieces.front());
  state.pieces.pop_front();
  return piece;
}

std::optional<TextPiece> Engine::next(StreamState& state) {
  Lock lock(mutex_);
  for (;;) {
    if (!state.pieces.empty()) {
      TextPiece piece = std::move(state.pieces.front());
      state.pieces.pop_front();
      return piece;
    }
    if (state.ended) return std::nullopt;
    if (is_driven_)
      changed_.wait(lock);
    else if (!drive(lock))
      wait_for_change(lock, std::numeric_limits<double>::infinity());
  }
}

bool Engine::poll(double seconds) {
  const double end = detail::steady_seconds() + seconds;
  Lock lock(mutex_);
  while (!is_driven_ && scheduler_.has_work()) {
    if (!drive(lock)) wait_for_change(lock, end);
    if (detail::steady_seconds() >= end) break;
  }
  return scheduler_.has_work();
}

void Engine::cancel(StreamState& state) {
  const Lock lock(mutex_);
  scheduler_.cancel(state.id, detail::steady_seconds());
  deliver(scheduler_.take_events());
  note_change();
}

bool Engine::ended(const StreamState& state) const {
  const Lock lock(mutex_);
  return state.ended;
}

Generation Engine::result(const StreamState& state) const {
  const Lock lock(mutex_);
  return state.result;
}

bool Engine::drive(Lock& lock) {
  const Turn turn(*this, lock);
  submit_next(lock);
  const std::vector<serving::Event> events = scheduler_.take_events();
  deliver(events);
  const bool is_busy = !submitted_.empty();
  if (is_busy) complete_oldest(lock);
  if (!is_busy && events.empty()) return false;
  note_change();
  return true;
}

// Texts may all wait for room that texts beside the sequences have. Then a thread has to let go of the lock, or these
// could never be given back; and it must not wake others in turns, although each turn ends with a notification.
void Engine::wait_for_change(Lock& lock, double until) {
  const auto has_changed = [this, before = changes_] { return changes_ != before; };
  constexpr double longest = 3600;  // of what a clock can add to its time
  const double seconds = std::min(until, scheduler_.next_deadline()) - detail::steady_seconds();
  changed_.wait_for(lock, std::chrono::duration<double>(std::clamp(seconds, 0.0, longest)), has_changed);
}

void Engine::note_change() {
  ++changes_;
  changed_.notify_all();
}

Engine::Turn::~Turn() {
  if (!lock_.owns_lock()) lock_.lock();
  engine_.is_driven_ = false;
  engine_.changed_.notify_all();
}

void Engine::suggest_drafts(Lock& lock) {
  const std::vector<serving::SequenceId> waiting = scheduler_.awaiting_drafts();
  if (waiting.empty()) return;
  std::vector<Drafter::Request> requests;
  for (const serving::SequenceId id : waiting) {
    const serving::Sequence& sequence = *scheduler_.find(id);
    // The model itself draws one token more than were guessed.
    const int count = std::min(sequence.draft_length(), sequence.tokens_left() - 1);
    requests.push_back({{sequence.tokens().begin(), sequence.tokens().end()}, count});
  }
  std::vector<std::vector<std::int32_t>> drafts;
  std::string failure;
  lock.unlock();
  try {
    drafts = drafter_->propose(std::move(requests));
  } catch (const std::exception& error) {
    failure = error.what();
  }
  lock.lock();
  if (!failure.empty()) return give_up_drafter(failure);
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const serving::Sequence* sequence = scheduler_.find(waiting[i]);  // it may have been cancelled meanwhile
    if (sequence != nullptr && sequence->awaits_draft()) scheduler_.suggest(waiting[i], std::move(drafts[i]));
  }
}

// No text depends on guesses, and those of prompt lookup remain.
void Engine::give_up_drafter(const std::string& failure) {
  fmt::print(stderr, "jerboa: the draft model failed and is no longer used: {}\n", failure);
  drafter_.reset();
  scheduler_.draft_by_lookup();
}

void Engine::draft_with(std::shared_ptr<Model> model) {
  auto drafter = std::make_unique<Drafter>(std::move(model), *model_);
  exclusively([&](serving::Scheduler& scheduler) {
    if (scheduler.has_work()) throw UsageError("the draft model cannot change while texts are being generated");
    drafter_ = std::move(drafter);
  });
}

void Engine::submit_next(Lock& lock) {
  bool any_admitted = false;
  do {
    suggest_drafts(lock);
    const std::size_t waiting = scheduler_.waiting();
    while (std::optional<serving::Step> step = scheduler_.next(detail::steady_seconds()))
      submit_step(lock, std::move(*step));
    any_admitted = scheduler_.waiting() < waiting;
  } while (submitted_.empty() && any_admitted);  // which may await a draft
}

void Engine::submit_step(Lock& lock, serving::Step step) {
  Submitted submitted{.step = std::move(step), .running = {}, .error = {}, .start = detail::steady_seconds()};
  lock.unlock();
  try {
    submitted.running = model_->run(submitted.step);
  } catch (...) {
    submitted.error = std::current_exception();
  }
  lock.lock();
  submitted_.push_back(std::move(submitted));
}

void Engine::complete_oldest(Lock& lock) {
  Submitted oldest = std::move(submitted_.front());
  submitted_.pop_front();
  serving::StepResults results;
  lock.unlock();
  try {
    if (!oldest.error) results = oldest.running.read(oldest.step);
  } catch (...) {
    oldest.error = std::current_exception();
  }
  lock.lock();
  const double now = detail::steady_seconds();
  collector_.add_step(oldest.step, oldest.running.dispatches(), oldest.start, now);
  if (trace_) trace_->add_step(oldest.step, oldest.start, now);
  if (!oldest.error) return deliver(scheduler_.complete(oldest.step, std::move(results), now));
  try {
    std::rethrow_exception(oldest.error);
  } catch (const OutOfMemoryError& error) {
    deliver(scheduler_.refuse(oldest.step, error.what(), now));
  } catch (const std::exception& error) {
    deliver(scheduler_.fail(oldest.step, error.what(), now));
  }
}

void Engine::deliver(const std::vector<serving::Event>& events) {
  for (const serving::Event& event : events) {
    const auto found = streams_.find(event.id);
    if (found == streams_.end()) continue;
    StreamState& state = *found->second;
    if (event.token) state.result.tokens.push_back(*event.token);
    if (event.logprobs) state.result.logprobs.push_back(*event.logprobs);
    state.result.text += event.text;
    if (event.token || !event.text.empty())
      state.pieces.push_back({event.token, event.text, detail::steady_seconds() - state.arrived, event.logprobs});
    if (!event.finished) continue;
    finish(state, event);
    streams_.erase(found);
  }
}

void Engine::finish(StreamState& state, const serving::Event& event) {
  const serving::SequenceStatistics& statistics = event.statistics;
  Generation& result = state.result;
  result.reason = reason_of(*event.finished);
  result.error = event.error;
  result.reused = statistics.reused;
  result.drafted = statistics.drafted;
  result.accepted = statistics.accepted;
  const double end = statistics.finished.value_or(state.arrived), first = statistics.first_token.value_or(end);
  result.prompt_seconds = first - statistics.arrived;
  result.token_seconds = end - first;
  state.ended = true;
  collector_.add_text(statistics);
  if (trace_) trace_->add_text(state.id, statistics);
}

ReservedBlocks Engine::reserve(std::int64_t tokens) {
  const bool has_states = model_->scheduling().state_slots > 0;
  Lock lock(mutex_);
  if (has_states) {
    if (state_holder_ == std::this_thread::get_id())
      throw UsageError(
          "this thread has blocks of the cache for a text already, and texts of a model with recurrent layers share "
          "one state; destroy them before reserving others");
    changed_.wait(lock, [&] { return !state_holder_; });
  }
  std::optional<serving::TextBlocks> blocks = scheduler_.reserve(tokens);
  if (!blocks)
    throw UsageError(
        fmt::format("the cache has no room for {} tokens beside the texts that are being generated; wait until they "
                    "have ended, or load the model with more cache_tokens",
                    tokens));
  if (has_states) state_holder_ = std::this_thread::get_id();
  return {shared_from_this(), std::move(*blocks)};
}

void Engine::give_back(std::unique_ptr<serving::TextBlocks> blocks) {
  const Lock lock(mutex_);
  blocks.reset();
  state_holder_.reset();
  note_change();
}

void Engine::clear_cache() {
  const Lock lock(mutex_);
  scheduler_.clear_prefixes();
}

Statistics Engine::statistics() const {
  const Lock lock(mutex_);
  Statistics out = collector_.statistics();
  const serving::SchedulerStatistics& scheduled = scheduler_.statistics();
  out.submitted = scheduled.added;
  out.refused = scheduled.refused;
  out.ended = scheduled.finished;
  out.preempted = scheduled.preemptions;
  out.steps = scheduled.steps;
  out.tokens = scheduled.tokens;
  out.padding = scheduled.padding;
  out.prompt_tokens = scheduled.prompt_tokens;
  out.reused = scheduled.reused;
  out.drafted = scheduled.drafted;
  out.accepted = scheduled.accepted;
  const serving::PagePool& pool = scheduler_.pool();
  out.cache_blocks = pool.blocks();
  out.used_blocks = pool.used_blocks();
  out.peak_blocks = pool.statistics().peak;
  out.cached_blocks = scheduler_.prefixes().reclaimable();
  out.evictions = scheduler_.prefixes().statistics().evictions;
  for (std::size_t group = 0; group < model_->cache().windowed.size(); ++group) {
    const serving::PagePool& blocks = scheduler_.windowed_pool(group);
    out.windowed.push_back({.window = model_->cache().windowed[group].window,
                            .blocks = blocks.blocks(),
                            .used = blocks.used_blocks(),
                            .peak = blocks.statistics().peak,
                            .cached = scheduler_.prefixes().reclaimable_windowed(group),
                            .evictions = scheduler_.prefixes().statistics().windowed_evictions[group]});
  }
  out.cache_bytes = model_->cache().bytes;
  out.weight_bytes = model_->weight_bytes();
  out.activation_bytes = model_->activation_bytes();
  return out;
}

void Engine::start_trace() {
  const Lock lock(mutex_);
  trace_.emplace();
}

void Engine::write_trace(const std::filesystem::path& path) const {
  const Lock lock(mutex_);
  if (!trace_) throw UsageError("there is no trace to write; call start_trace before the texts are generated");
  trace_->write(path);
}

}  // namespace jerboa::language
