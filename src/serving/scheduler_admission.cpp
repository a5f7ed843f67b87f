#include <algorithm>

#include <jerboa/serving/scheduler.h>

// Which sequences are in the cache: admission in order of arrival, and preemption in the opposite order.
namespace jerboa::serving {

void Scheduler::admit() {
  for (auto next = waiting_.begin(); next != waiting_.end() && std::ssize(running_) < options_.max_rows;) {
    Sequence& sequence = at(*next++);
    // Its tokens are not all known before its steps in flight are complete.
    if (sequence.pending > 0 || waits_for_parent(sequence)) continue;
    if (!try_admit(sequence)) return;  // others must not overtake it, or it might never find room
    waiting_.erase(sequence.id());
    running_.insert(sequence.id());
  }
}

// Recomputing the prompt would be wasteful; the parent is older, so it does not wait for long.
bool Scheduler::waits_for_parent(const Sequence& sequence) const {
  if (!sequence.parent) return false;
  const Sequence* parent = find(*sequence.parent);
  return parent != nullptr && parent->place.computed + 1 < sequence.prompt_tokens();
}

// The blocks that running sequences still need for their prompts.
int Scheduler::promised_blocks() const {
  int blocks = 0;
  for (const SequenceId id : running_) {
    const Sequence& sequence = *find(id);
    blocks +=
        std::max(0, pool_.blocks_for(sequence.length() + 1) - static_cast<int>(sequence.place.table.blocks().size()));
  }
  return blocks;
}

// The blocks of layers with a window that a place needs until its text has this length.
int Scheduler::needed_windowed(const CachePlace& place, std::size_t group, std::int64_t length) const {
  const PageTable& table = place.windowed[group];
  const int all = table.blocks_to_append(std::max<std::int64_t>(length - table.length(), 0));
  const int most = most_windowed_blocks(options_, windowed_[group]->window) - table.held();
  return std::clamp(most, 0, all);
}

int Scheduler::promised_windowed(std::size_t group) const {
  int blocks = 0;
  for (const SequenceId id : running_) blocks += needed_windowed(find(id)->place, group, find(id)->length() + 1);
  return blocks;
}

// One extra block per running sequence, so that a newcomer is not preempted as soon as they grow. A sequence alone
// always fits.
bool Scheduler::has_room_for(const CachePlace& place, std::int64_t length) const {
  if (running_.empty()) return true;
  const int others = static_cast<int>(running_.size());
  const int needed = place.table.blocks_to_append(length - place.table.length());
  if (needed + promised_blocks() + others > pool_.free_blocks() + tree_.reclaimable()) return false;
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    const int wanted = needed_windowed(place, group, length) + promised_windowed(group) + others;
    if (wanted > windowed_[group]->pool.free_blocks() + tree_.reclaimable_windowed(group)) return false;
  }
  return true;
}

bool Scheduler::try_admit(Sequence& sequence) {
  std::optional<StateSlot> slot;
  if (options_.state_slots > 0) {
    slot = take_slot();  // before the lookup, which might otherwise find a snapshot and then evict it for the slot
    if (!slot) return false;
  }
  const std::int32_t state = enter_cache(sequence);
  CachePlace& place = sequence.place;
  const auto has_room = [&] { return has_room_for(place, sequence.length() + 1); };
  if (!has_room() && !(release_before_windows() && has_room())) {
    place = new_place();
    return false;
  }
  if (slot) place.states.emplace(std::move(*slot), place.computed, state, state_copies_);
  sequence.running = true;
  if (sequence.statistics().preemptions == 0) {
    sequence.count().reused = place.computed;
    statistics_.prompt_tokens += sequence.length();
    statistics_.reused += place.computed;
  } else {
    sequence.count().recomputed += sequence.length() - place.computed;
  }
  return true;
}

// Takes over the cached prefix of its tokens, from the parent or from the prefix tree. The last token is always
// computed, because the next one is drawn from its result. Returns the slot with the states there, if there is one.
std::int32_t Scheduler::enter_cache(Sequence& sequence) {
  CachePlace& place = sequence.place;
  const auto known = sequence.tokens().first(static_cast<std::size_t>(sequence.length() - 1));
  if (options_.prefix_cache) {
    place.path = tree_.find(sequence.options().name_space, known);
    for (const Block block : place.path.blocks()) place.table.append_shared(block);
    for (std::size_t group = 0; group < windowed_.size(); ++group) {
      const std::vector<Block> blocks = place.path.windowed(group);
      const auto first = std::find_if(blocks.begin(), blocks.end(), [](Block block) { return block != no_block; });
      place.windowed[group].skip(first - blocks.begin());
      std::for_each(first, blocks.end(), [&](Block block) { place.windowed[group].append_shared(block); });
    }
  }
  std::int32_t state = place.path.state();
  if (const Sequence* parent = sequence.parent ? find(*sequence.parent) : nullptr) {
    const auto [length, from] = shared_with(parent->place, sequence.length() - 1);
    const std::int64_t common = length;
    const auto sees = [&](const PageTable& table, int window) {
      return table.first() <= (window > 0 ? std::max<std::int64_t>(common - window + 1, 0) : 0);
    };
    bool is_there = common > place.table.length() && sees(parent->place.table, options_.window);
    for (std::size_t group = 0; is_there && group < windowed_.size(); ++group)
      is_there = sees(parent->place.windowed[group], windowed_[group]->window);
    if (is_there) {
      const auto take = [&](PageTable& to, const PageTable& shared) {
        to = shared.fork();
        to.truncate(common);
      };
      take(place.table, parent->place.table);
      for (std::size_t group = 0; group < windowed_.size(); ++group)
        take(place.windowed[group], parent->place.windowed[group]);
      // The tree cannot continue without the missing blocks.
      if (place.table.first() > path_length(place)) place.path.reset();
      state = from;
    }
  }
  place.computed = place.written = place.table.length();
  return state;
}

// How much of a parent's cache, at most `most` positions, a child can take over. States cannot be truncated, so with
// them it is up to the live one, or the snapshot at the end of the prompt's whole blocks.
std::pair<std::int64_t, std::int32_t> Scheduler::shared_with(const CachePlace& parent, std::int64_t most) const {
  if (options_.state_slots == 0) return {std::min(parent.computed, most), no_slot};
  if (parent.states && parent.states->position() <= most) return {parent.states->position(), parent.states->live()};
  if (parent.snapshot && parent.snapshot_at <= most) return {parent.snapshot_at, parent.snapshot.number()};
  return {0, no_slot};
}

std::optional<TextBlocks> Scheduler::reserve(std::int64_t positions) {
  std::vector<BlockCopy> none;  // new tables need no copies
  PageTable table(pool_);
  if (!make_room(table, positions)) return std::nullopt;
  table.append(positions, none);
  std::vector<PageTable> rings;
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    // The positions that a chunk sees, and the chunk itself: the next one is computed after it.
    const int blocks = most_windowed_blocks(options_, windowed_[group]->window, options_.chunk);
    const std::int64_t length = std::min(positions, std::int64_t{blocks} * options_.block_size);
    PageTable& ring = rings.emplace_back(windowed_[group]->pool);
    if (!make_windowed_room(ring, group, length)) return std::nullopt;
    ring.append(length, none);
  }
  return TextBlocks(std::move(table), std::move(rings));
}

std::vector<Block> TextBlocks::windowed(std::size_t group) const {
  const std::vector<Block>& ring = rings_[group].blocks();
  std::vector<Block> blocks(whole_.blocks().size());
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = ring[i % ring.size()];
  return blocks;
}

std::int64_t Scheduler::path_length(const CachePlace& place) const {
  return static_cast<std::int64_t>(place.path.size()) * pool_.block_size();
}

std::optional<StateSlot> Scheduler::take_slot() {
  auto slot = slots_.allocate();
  if (!slot && tree_.evict_state()) slot = slots_.allocate();
  if (!slot) return std::nullopt;
  return StateSlot(slots_, *slot);
}

// Gives back the blocks that no running sequence will read again: those before the window of its next position, which
// is not before the written positions. The prefix tree cannot continue without them, and may evict them now.
bool Scheduler::release_before_windows() {
  if (options_.window == 0) return false;
  bool any = false;
  for (const SequenceId id : running_) {
    CachePlace& place = at(id).place;
    if (place.table.release_before(place.written - options_.window + 1) == 0) continue;
    place.path.reset();
    any = true;
  }
  return any;
}

// Layers with windows keep only what the next tokens see; the prefix tree decides whether to keep earlier blocks.
void Scheduler::release_passed(Sequence& sequence) {
  const std::int64_t known = std::min(sequence.place.written, sequence.length());
  for (std::size_t group = 0; group < windowed_.size(); ++group)
    sequence.place.windowed[group].release_before(windowed_[group]->first_seen(known));
}

bool Scheduler::make_room(PageTable& table, std::int64_t more) {
  for (int missing = 0; (missing = table.blocks_to_append(more) - pool_.free_blocks()) > 0;)
    if (tree_.evict(missing) == 0 && !release_before_windows()) return false;
  return true;
}

bool Scheduler::make_windowed_room(PageTable& table, std::size_t group, std::int64_t more) {
  const PagePool& pool = windowed_[group]->pool;
  for (int missing = 0; (missing = table.blocks_to_append(more) - pool.free_blocks()) > 0;)
    if (tree_.evict_windowed(group, missing) == 0) return false;
  return true;
}

bool Scheduler::grow_without_preemption(Sequence& sequence, std::int64_t length) {
  CachePlace& place = sequence.place;
  const std::int64_t more = std::max<std::int64_t>(length - place.table.length(), 0);
  if (!make_room(place.table, more)) return false;
  for (std::size_t group = 0; group < windowed_.size(); ++group)
    if (!make_windowed_room(place.windowed[group], group, more)) return false;
  place.table.append(more, copies_);
  for (std::size_t group = 0; group < windowed_.size(); ++group)
    place.windowed[group].append(more, windowed_copies_[group]);
  return true;
}

bool Scheduler::grow(Sequence& sequence, std::int64_t length) {
  while (!grow_without_preemption(sequence, length))
    if (!preempt_younger(sequence)) return false;
  return true;
}

// Preempts the youngest running sequence, unless it is part of the step that is being planned.
bool Scheduler::preempt_younger(const Sequence& sequence) {
  for (auto youngest = running_.rbegin(); youngest != running_.rend() && *youngest > sequence.id(); ++youngest) {
    Sequence& victim = at(*youngest);
    if (victim.last_step == step_number_) continue;
    preempt(victim);
    return true;
  }
  return false;
}

// The sequence waits with the tokens that it has. Results of its steps in flight still count, but their cache entries
// do not.
void Scheduler::preempt(Sequence& sequence) {
  sequence.place = new_place();
  sequence.running = false;
  sequence.parent.reset();  // it now has tokens of its own, which may be in the prefix tree
  ++sequence.epoch;
  ++sequence.count().preemptions;
  ++statistics_.preemptions;
  running_.erase(sequence.id());
  waiting_.insert(sequence.id());
}

}  // namespace jerboa::serving
