#include <algorithm>

#include <jerboa/serving/scheduler.h>

#include "serving/step_builder.h"

// Decides what the next step computes.
namespace jerboa::serving {

std::optional<Step> Scheduler::next(double now) {
  expire(now);
  if (in_flight_.size() > (options_.pipelined ? 1u : 0u)) return std::nullopt;
  admit();
  Plan plan;
  if (options_.mixed_time > 0) {
    const bool prompts_first = prefill_is_blocked_;
    if (prompts_first) plan_prefill(plan, options_.mixed_time);
    plan_decode(plan);
    const bool alone = plan.empty() && !options_.always_mixed;
    if (!prompts_first) plan_prefill(plan, alone ? options_.chunk : options_.mixed_time);
  } else {
    if (prefill_is_due_) plan_prefill(plan, options_.chunk);
    if (plan.empty()) plan_decode(plan);
    if (plan.empty()) plan_prefill(plan, options_.chunk);
  }
  if (plan.empty()) return std::nullopt;
  return build(plan, now);
}

// Whether its next step draws a token from its last one.
bool Scheduler::can_decode(const Sequence& sequence) const {
  if (sequence.length() + sequence.pending - sequence.place.computed != 1) return false;
  if (sequence.pending == 0) return !sequence.awaits_draft();
  // Its last token is still in flight: the device carries it over, unless the host must see it first or the text may
  // not continue.
  return sequence.pending == 1 && sequence.can_be_carried() && sequence.last_step == step_number_ - 1 &&
         sequence.generated() + 1 < sequence.options().max_tokens && sequence.place.computed < context_;
}

// Sequences that cannot be carried over would split into two halves that take turns, each at the cost of a whole step:
// those that are ready wait for those in flight.
bool Scheduler::gathers_batch() const {
  bool others_are_in_flight = false;
  for (const SequenceId id : running_) {
    const Sequence& sequence = *find(id);
    if (sequence.can_be_carried() && can_decode(sequence)) return false;
    others_are_in_flight |= !sequence.can_be_carried() && sequence.pending > 0;
  }
  return others_are_in_flight;
}

void Scheduler::plan_decode(Plan& plan) {
  if (gathers_batch()) return;
  const std::vector<SequenceId> oldest_first(running_.begin(), running_.end());
  for (const SequenceId id : oldest_first) {
    if (std::ssize(plan) >= options_.max_rows) return;
    if (!running_.contains(id)) continue;  // preempted in favour of an earlier one
    Sequence& sequence = at(id);
    if (sequence.last_step == step_number_ || !can_decode(sequence)) continue;
    std::vector<std::int32_t> draft = draft_of(sequence);
    if (draft.empty() && !grow(sequence, sequence.place.computed + 1)) continue;
    issue(plan, sequence, 1, 1, draft);
  }
}

// Guesses, if the cache has room for them.
std::vector<std::int32_t> Scheduler::draft_of(Sequence& sequence) {
  if (sequence.options().drafts == 0) return {};
  CachePlace& place = sequence.place;
  const std::int64_t most = std::min({sequence.options().max_tokens - sequence.generated() - 1,
                                      context_ - sequence.length(), static_cast<std::int64_t>(options_.chunk - 1)});
  std::vector<std::int32_t> draft = sequence.propose(most);
  if (draft.empty()) return {};
  std::optional<StateSlot> slot;
  if (place.states && !(slot = take_slot())) return {};
  if (!grow_without_preemption(sequence, place.computed + 1 + std::ssize(draft))) return {};
  if (slot) place.states->snapshot(std::move(*slot), state_copies_);
  return draft;
}

// Prompts take turns: each gets a chunk, and the next step continues with the one after the last.
void Scheduler::plan_prefill(Plan& plan, int width) {
  std::vector<SequenceId> turns(running_.begin(), running_.end());
  std::rotate(turns.begin(), std::upper_bound(turns.begin(), turns.end(), last_prefilled_), turns.end());
  std::int64_t budget = options_.prefill_tokens;
  prefill_is_blocked_ = false;
  for (const SequenceId id : turns) {
    const auto rows = options_.max_rows - std::ssize(plan);
    if (budget <= 0 || rows <= 0) return;
    if (!running_.contains(id)) continue;
    Sequence& sequence = at(id);
    if (sequence.pending > 0 || sequence.length() - sequence.place.computed <= 1) continue;
    const std::int64_t fits = options_.state_slots > 0 ? width : rows * width;  // a state is in one row at a time
    const std::int64_t count = prefill_count(sequence, std::min({budget, std::int64_t{options_.chunk}, fits}));
    if (!fits_cells(plan, count, width)) return;  // the next step begins with it
    if (!grow(sequence, sequence.place.computed + count)) {
      prefill_is_blocked_ = true;
      continue;
    }
    issue(plan, sequence, count, width, {});
    budget -= count;
    last_prefilled_ = id;
  }
}

// Whether a step is still small enough with this many more tokens. A sequence alone always fits.
bool Scheduler::fits_cells(const Plan& plan, std::int64_t count, int width) const {
  if (plan.empty() || options_.prefill_cells == 0) return true;
  auto longest = static_cast<int>(std::min<std::int64_t>(count, width));
  for (const Planned& planned : plan) longest = std::max(longest, planned.row.count);
  const std::int64_t rows = sizes_->rows.size_for(static_cast<int>(std::ssize(plan) + (count + width - 1) / width));
  return rows * sizes_->time.size_for(longest) <= options_.prefill_cells;
}

// With recurrent states, a row ends where the prompt's last whole block does, so that a snapshot can be taken there.
std::int64_t Scheduler::prefill_count(const Sequence& sequence, std::int64_t most) const {
  const std::int64_t start = sequence.place.computed, count = std::min(most, sequence.length() - start);
  const std::int64_t boundary = snapshot_position(sequence);
  return options_.state_slots > 0 && start < boundary && boundary < start + count ? boundary - start : count;
}

std::int64_t Scheduler::snapshot_position(const Sequence& sequence) const {
  return (sequence.length() - 1) / pool_.block_size() * pool_.block_size();
}

// Adds the rows of a sequence, which must have room for them.
void Scheduler::issue(Plan& plan, Sequence& sequence, std::int64_t count, int width,
                      const std::vector<std::int32_t>& draft) {
  CachePlace& place = sequence.place;
  const bool is_carried = place.computed >= sequence.length();
  for (std::int64_t left = count; left > 0;) {
    const auto tokens = static_cast<int>(std::min<std::int64_t>(left, width));
    left -= tokens;
    const int drafts = left == 0 ? static_cast<int>(draft.size()) : 0;
    Planned planned{.row = {sequence.id(), place.computed, tokens + drafts, drafts, Wanted::nothing},
                    .carried = is_carried ? sequence.last_row : -1,
                    .draw = static_cast<std::uint32_t>(sequence.generated() + sequence.pending),
                    .epoch = sequence.epoch};
    place.computed += planned.row.count;
    if (place.states) place.states->advance(planned.row.count);
    if (place.computed >= sequence.length()) {
      planned.row.wanted = sequence.samples_on_host() ? Wanted::logits : Wanted::token;
      if (planned.row.wanted == Wanted::token) planned.row.logprobs = sequence.options().logprobs;
      planned.draft = draft;
      ++sequence.pending;
    }
    plan.push_back(std::move(planned));
  }
  if (place.states && count > 0 && place.computed == snapshot_position(sequence)) snapshot_prefix(sequence);
  sequence.last_step = step_number_;
  sequence.last_row = static_cast<std::int32_t>(plan.size() - 1);
}

// Keeps the states at the end of the prompt's whole blocks for texts with the same prefix.
void Scheduler::snapshot_prefix(Sequence& sequence) {
  CachePlace& place = sequence.place;
  if (!place.path || place.computed <= path_length(place)) return;
  std::optional<StateSlot> slot = take_slot();
  if (!slot) return;
  place.snapshot = std::move(*slot);
  place.snapshot_at = place.computed;
  later_state_copies_.push_back({place.states->live(), place.snapshot.number()});
}

// A sequence whose constraint allows nothing ends here; its row is computed in vain.
void Scheduler::set_mask(Step& step, double now) {
  const auto words = static_cast<std::size_t>(options_.vocabulary + 31) / 32;
  for (std::size_t row = 0; row < step.plan.size(); ++row) {
    Sequence& sequence = at(step.plan[row].id);
    if (!sequence.is_masked() || step.plan[row].wanted == Wanted::nothing) continue;
    step.mask.resize(static_cast<std::size_t>(step.rows) * words, ~0u);  // other rows are unrestricted
    try {
      const std::vector<std::uint64_t>& allowed = sequence.mask().words();
      for (std::size_t word = 0; word < words; ++word)
        step.mask[row * words + word] =
            word / 2 < allowed.size() ? static_cast<std::uint32_t>(allowed[word / 2] >> (word % 2 * 32)) : 0;
    } catch (const std::exception& error) {
      finish(sequence, FinishReason::failed, now, {.error = error.what()});
    }
  }
}

Step Scheduler::build(Plan& plan, double now) {
  std::vector<RowInput> rows;
  bool has_prompts = false, has_next = false;
  for (const Planned& planned : plan) {
    const Row& row = planned.row;
    const Sequence& sequence = at(row.id);
    const bool is_carried = planned.carried >= 0;
    const auto ids = sequence.tokens().subspan(static_cast<std::size_t>(row.start - (is_carried ? 1 : 0)));
    rows.push_back({.row = row,
                    .ids = is_carried ? ids.first(0) : ids.first(static_cast<std::size_t>(row.count - row.drafts)),
                    .draft = planned.draft,
                    .table = sequence.place.table.blocks(),
                    .sampling = &sequence.options().sampling,
                    .seen = sequence.seen(),
                    .draw = planned.draw,
                    .carried = planned.carried,
                    .state = sequence.place.states ? sequence.place.states->live() : no_slot});
    for (const PageTable& table : sequence.place.windowed) rows.back().windowed.emplace_back(table.blocks());
    (row.count - row.drafts > 1 || row.wanted == Wanted::nothing ? has_prompts : has_next) = true;
  }
  Step step = build_step(rows, *sizes_, options_.state_slots > 0, windowed_.size());
  if (options_.device_masks) set_mask(step, now);
  step.number = step_number_++;
  step.kind = !has_prompts ? StepKind::decode : has_next ? StepKind::mixed : StepKind::prefill;
  step.copies = std::exchange(copies_, {});
  for (std::size_t group = 0; group < windowed_.size(); ++group)
    step.windowed[group].copies = std::exchange(windowed_copies_[group], {});
  step.state_copies = std::exchange(state_copies_, std::exchange(later_state_copies_, {}));
  prefill_is_due_ = step.kind == StepKind::decode;
  ++statistics_.steps;
  statistics_.rows += std::ssize(plan);
  for (const Planned& planned : plan) statistics_.tokens += planned.row.count;
  statistics_.padding += static_cast<std::int64_t>(step.rows) * step.time;
  for (const Planned& planned : plan) statistics_.padding -= planned.row.count;
  in_flight_.push_back({step.number, std::move(plan), step.outputs});
  return step;
}

}  // namespace jerboa::serving
