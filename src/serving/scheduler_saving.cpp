#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/scheduler.h>

// Parts of the cache on their way to other schedulers and back.
namespace jerboa::serving {

SavedTable Scheduler::save(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr || !sequence->running)
    throw UsageError(fmt::format("sequence {} has no cache to save: it {}", id, sequence ? "waits" : "has ended"));
  if (options_.state_slots > 0)
    throw UsageError(
        "a sequence with recurrent states has them only in the prefix tree; save what is cached of its tokens");
  if (sequence->place.table.first() > 0)
    throw UsageError(
        fmt::format("sequence {} has given back what lies before its window, so that it cannot be saved", id));
  const auto whole =
      static_cast<std::size_t>(std::min(sequence->place.written, sequence->length()) / pool_.block_size());
  SavedTable out = sequence->place.table.save();
  out.blocks.resize(whole);
  out.length = static_cast<std::int64_t>(whole) * pool_.block_size();
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    const std::vector<Block>& blocks = sequence->place.windowed[group].blocks();
    const auto first = static_cast<std::ptrdiff_t>(whole) - std::min<std::ptrdiff_t>(windowed_[group]->reach(), whole);
    out.windowed.push_back({first, {blocks.begin() + first, blocks.begin() + static_cast<std::ptrdiff_t>(whole)}});
  }
  return out;
}

SavedTable Scheduler::save(const std::string& name_space, std::span<const std::int32_t> tokens) {
  const PrefixTree::Path path = tree_.find(name_space, tokens);
  SavedTable out{.length = static_cast<std::int64_t>(path.size()) * pool_.block_size(),
                 .block_size = pool_.block_size(),
                 .blocks = path.blocks(),
                 .state = path.state()};
  for (std::size_t group = 0; group < windowed_.size(); ++group) {
    const std::vector<Block> blocks = path.windowed(group);
    const auto first = std::ssize(blocks) - std::min<std::ptrdiff_t>(windowed_[group]->reach(), std::ssize(blocks));
    out.windowed.push_back({first, {blocks.begin() + first, blocks.end()}});
  }
  return out;
}

// A block, or no_block if there is none.
Block Scheduler::allocate_windowed(std::size_t group) {
  PagePool& pool = windowed_[group]->pool;
  std::optional<Block> block = pool.allocate();
  if (!block && tree_.evict_windowed(group, 1) > 0) block = pool.allocate();
  return block.value_or(no_block);
}

Restored Scheduler::restore(const std::string& name_space, std::span<const std::int32_t> tokens,
                            const SavedTable& saved) {
  if ((options_.state_slots > 0) != (saved.state != no_slot) && !saved.blocks.empty())
    throw UsageError(options_.state_slots > 0 ? "the saved cache has no recurrent states, but the model has"
                                              : "the saved cache has recurrent states, but the model has none");
  const auto size = static_cast<std::size_t>(pool_.block_size());
  if (saved.block_size != pool_.block_size() || tokens.size() < saved.blocks.size() * size)
    throw UsageError(
        fmt::format("the saved cache has {} blocks of {} tokens and {} tokens, but this cache has blocks of "
                    "{}; load the model with the same block size",
                    saved.blocks.size(), saved.block_size, tokens.size(), size));
  if (saved.windowed.size() != windowed_.size())
    throw UsageError("the saved cache has layers with other windows than the model");
  Restored out;
  out.windowed.resize(windowed_.size());
  PrefixTree::Path path = tree_.find(name_space, tokens.first(saved.blocks.size() * size));
  if (path.size() == std::ssize(saved.blocks)) return out;
  for (auto index = static_cast<std::size_t>(path.size()); index < saved.blocks.size(); ++index) {
    std::optional<Block> block = pool_.allocate();
    if (!block && tree_.evict(1) > 0) block = pool_.allocate();
    if (!block) return out;
    std::vector<Block> windowed;
    for (std::size_t group = 0; group < windowed_.size(); ++group)
      windowed.push_back(std::cmp_less(index, saved.windowed[group].first) ? no_block : allocate_windowed(group));
    const Block kept = tree_.append(path, tokens.subspan(index * size, size), *block, windowed);
    pool_.release(*block);  // the tree holds it now, or has had another
    if (kept == *block) out.blocks.push_back({index, *block});
    for (std::size_t group = 0; group < windowed_.size(); ++group) {
      if (windowed[group] == no_block) continue;
      windowed_[group]->pool.release(windowed[group]);
      if (path.last_windowed(group) != windowed[group]) continue;
      const auto first = static_cast<std::size_t>(saved.windowed[group].first);
      out.windowed[group].push_back({index - first, windowed[group]});
    }
  }
  if (options_.state_slots == 0) return out;
  if (std::optional<StateSlot> slot = take_slot()) {
    out.state = slot->number();
    tree_.keep_state(path, std::move(*slot));
  }
  return out;
}

}  // namespace jerboa::serving
