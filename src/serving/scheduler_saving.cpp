#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/serving/scheduler.h>

// Saves parts of the cache for other schedulers, and restores them.
namespace jerboa::serving {
namespace {

// Extra blocks before those that windows see from the end of a text: a text that ends with the last block continues
// from the end of the block before, because its last token is always computed.
constexpr int also_saved = 1;

}  // namespace

SavedTable Scheduler::save(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr || !sequence->running)
    throw UsageError(fmt::format("sequence {} has no cache to save: it {}", id, sequence ? "waits" : "has ended"));
  if (options_.state_slots > 0)
    throw UsageError(
        "the recurrent states of a sequence are kept only in the prefix tree; save the cache of its tokens instead");
  const std::int64_t whole = std::min(sequence->place.written, sequence->length()) / pool_.block_size();
  SavedTable out = sequence->place.table.save();
  out.blocks.resize(static_cast<std::size_t>(whole));
  out.length = whole * pool_.block_size();
  bool is_there = sequence->place.table.first() == 0;
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    const PageTable& table = sequence->place.windowed[group];
    const std::int64_t first = whole - std::min<std::int64_t>(windowed_[group]->reach(), whole);
    is_there &= table.first() <= first * pool_.block_size();  // a fork shares the blocks that its parent still held
    out.windowed.push_back({first, {table.blocks().begin() + first, table.blocks().begin() + whole}});
  }
  if (!is_there)
    throw UsageError(fmt::format("sequence {} has given back the blocks before its window, so it cannot be saved", id));
  return out;
}

// The slot that holds a slot's content until the copies before the next step are made.
std::int32_t Scheduler::holder_of(std::int32_t slot) const {
  for (auto copy = state_copies_.rbegin(); copy != state_copies_.rend(); ++copy)
    if (copy->to == slot) slot = copy->from;
  return slot;
}

SavedTable Scheduler::save(const std::string& name_space, std::span<const std::int32_t> tokens) {
  const PrefixTree::Path path = tree_.find(name_space, tokens);
  SavedTable out{.length = static_cast<std::int64_t>(path.size()) * pool_.block_size(),
                 .block_size = pool_.block_size(),
                 .blocks = path.blocks(),
                 .state = holder_of(path.state())};
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    const std::vector<Block> blocks = path.windowed(group, also_saved);
    const auto first = std::find_if(blocks.begin(), blocks.end(), [](Block block) { return block != no_block; });
    out.windowed.push_back({first - blocks.begin(), {first, blocks.end()}});
  }
  return out;
}

// A slot that no copy before the next step reads or writes, because the host fills it before they are made.
std::optional<StateSlot> Scheduler::take_slot_to_fill() {
  const auto is_copied = [&](std::int32_t slot) {
    return std::any_of(state_copies_.begin(), state_copies_.end(),
                       [&](const SlotCopy& copy) { return copy.from == slot || copy.to == slot; });
  };
  std::vector<StateSlot> copied;  // held so that they are not found again
  std::optional<StateSlot> slot;
  while ((slot = take_slot()) && is_copied(slot->number())) copied.push_back(std::move(*slot));
  return slot;
}

void Scheduler::check_saved(std::span<const std::int32_t> tokens, const SavedTable& saved) const {
  if ((options_.state_slots > 0) != (saved.state != no_slot) && !saved.blocks.empty())
    throw UsageError(options_.state_slots > 0 ? "the saved cache has no recurrent states, but the model has"
                                              : "the saved cache has recurrent states, but the model has none");
  const auto size = static_cast<std::size_t>(pool_.block_size());
  if (saved.block_size != pool_.block_size() || tokens.size() < saved.blocks.size() * size)
    throw UsageError(
        fmt::format("the saved cache has {} blocks of {} tokens and {} tokens, but this cache has blocks of "
                    "{}; load the model with the same block size",
                    saved.blocks.size(), saved.block_size, tokens.size(), size));
  bool fits = saved.windowed.size() == windowed_.size();
  for (std::size_t group = 0; fits && group < windowed_.size(); ++group) {
    const auto& [first, blocks] = saved.windowed[group];
    const std::ptrdiff_t whole = std::ssize(saved.blocks);
    fits = first >= 0 && first + std::ssize(blocks) == whole &&
           std::ssize(blocks) >= std::min<std::ptrdiff_t>(windowed_[group]->reach(), whole);
  }
  if (!fits) throw UsageError("the saved cache has layers with other windows than the model");
}

// For each group of layers with windows, the blocks that the end of a restored text sees, and `more` before, as far as
// they are present. A path does not keep them in the tree.
std::vector<PageTable> Scheduler::seen_from_end(const PrefixTree::Path& path, const SavedTable& saved,
                                                std::int64_t more) {
  std::vector<PageTable> ends;
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    const std::vector<Block> blocks = path.windowed(group);
    const std::int64_t seen = windowed_[group]->reach() + more;
    auto next = static_cast<std::size_t>(std::max(saved.windowed[group].first, std::ssize(saved.blocks) - seen));
    while (next < blocks.size() && blocks[next] == no_block) ++next;
    PageTable& end = ends.emplace_back(windowed_[group]->pool);
    end.skip(static_cast<std::int64_t>(next));
    for (; next < blocks.size(); ++next) end.append_shared(blocks[next]);
  }
  return ends;
}

// Whether there is room for the missing blocks, and for those that the end of a text of this length sees.
bool Scheduler::has_room_for_rest(std::int64_t missing, const std::vector<PageTable>& ends, std::int64_t length) const {
  if (missing > pool_.free_blocks() + tree_.reclaimable()) return false;
  for (std::size_t group = 0; group < ends.size(); ++group)
    if (ends[group].blocks_to_append(length - ends[group].length()) >
        windowed_[group]->pool.free_blocks() + tree_.reclaimable_windowed(group))
      return false;
  return true;
}

// Continues the path by a block, and lists the blocks that the host must fill for layers with windows.
void Scheduler::append_restored(PrefixTree::Path& path, std::span<const std::int32_t> tokens, Block block,
                                std::vector<PageTable>& ends, const SavedTable& saved, Restored& restored) {
  const auto index = static_cast<std::size_t>(path.size());
  std::vector<Block> windowed;
  for (const PageTable& end : ends) windowed.push_back(end.blocks()[index]);
  tree_.append(path, tokens, block, windowed);
  for (std::size_t group = 0; group < ends.size(); ++group) {
    if (windowed[group] == no_block) continue;
    const Block kept = path.last_windowed(group);
    if (kept == windowed[group])
      restored.windowed[group].push_back({index - static_cast<std::size_t>(saved.windowed[group].first), kept});
    else
      ends[group].replace(index, kept);
  }
}

Restored Scheduler::restore(const std::string& name_space, std::span<const std::int32_t> tokens,
                            const SavedTable& saved) {
  check_saved(tokens, saved);
  const auto size = static_cast<std::size_t>(pool_.block_size());
  const std::int64_t whole = std::ssize(saved.blocks), length = whole * pool_.block_size();
  tokens = tokens.first(static_cast<std::size_t>(length));
  Restored out;
  out.windowed.resize(windowed_.size());
  PrefixTree::Path path = tree_.find(name_space, tokens);
  const std::int64_t found = path.size();
  if (found == whole) return out;

  // The blocks that the end needs are held until they are in the tree, so that one block does not evict the next.
  const PrefixTree::Path known = tree_.longest(name_space, tokens);
  std::vector<PageTable> ends = seen_from_end(path, saved, also_saved);
  const auto has_room = [&] { return has_room_for_rest(whole - known.size(), ends, length); };
  const bool needs_all = options_.state_slots > 0 || !windowed_.empty();
  if (needs_all && !has_room()) {
    ends = seen_from_end(path, saved, 0);
    if (!has_room()) return out;
  }
  std::optional<StateSlot> slot;
  if (options_.state_slots > 0 && !(slot = take_slot_to_fill())) return out;
  std::vector<BlockCopy> none;  // whole blocks are never copied
  for (std::size_t group = 0; group < ends.size(); ++group) {
    const std::int64_t more = length - ends[group].length();
    if (!make_windowed_room(ends[group], group, more)) return out;
    ends[group].append(more, none);
  }
  PageTable added(pool_);
  while (known.size() + std::ssize(added.blocks()) < whole && make_room(added, pool_.block_size()))
    added.append(pool_.block_size(), none);
  if (needs_all && known.size() + std::ssize(added.blocks()) < whole) return out;

  std::vector<Block> blocks = known.blocks();
  blocks.insert(blocks.end(), added.blocks().begin(), added.blocks().end());
  for (auto index = static_cast<std::size_t>(found); index < blocks.size(); ++index) {
    append_restored(path, tokens.subspan(index * size, size), blocks[index], ends, saved, out);
    if (index + 2 == blocks.size()) tree_.keep_end(path);  // for a text that ends with the last block
    if (std::cmp_greater_equal(index, known.size())) out.blocks.push_back({index, blocks[index]});
  }
  out.tokens = (path.size() - found) * pool_.block_size();
  if (!slot) return out;
  out.state = slot->number();
  tree_.keep_state(path, std::move(*slot));
  return out;
}

}  // namespace jerboa::serving
