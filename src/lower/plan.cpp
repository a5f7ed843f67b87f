#include "lower/plan.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/integers.h"
#include "base/stable_sort.h"
#include "lower/lives.h"

namespace jerboa::detail {
namespace {

// The fields that the search for a gap needs, kept contiguous: it scans all buffers for each buffer.
struct Placed {
  int first = 0, last = 0;
  std::int64_t offset = 0, end = 0;  // the end is aligned
};

// The lowest, tightest gap among the buffers with overlapping live ranges. `placed` is sorted by offset.
std::int64_t place(const Buffer& buffer, const std::vector<Placed>& placed) {
  std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (const Placed& other : placed) {
    if (!lives_overlap(other, buffer)) continue;
    const std::int64_t gap = other.offset - end;
    if (gap >= buffer.bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, other.end);
  }
  return best >= 0 ? best : end;
}

// One arena; each buffer gets an offset in it.
void place_in_one(Program& program, const std::vector<Buffer*>& largest_first, const Target& target) {
  const auto is_lower = [](const Placed& a, const Placed& b) { return a.offset < b.offset; };
  std::vector<Placed> placed;
  std::int64_t size = 0, next = 0;
  for (Buffer* buffer : largest_first) {
    buffer->offset = target.plan ? place(*buffer, placed) : next;
    next = round_up(buffer->offset + buffer->bytes, target.offset_alignment);
    size = std::max(size, next);
    const Placed here{buffer->first, buffer->last, buffer->offset, next};
    if (target.plan) placed.insert(std::upper_bound(placed.begin(), placed.end(), here, is_lower), here);
  }
  program.arenas = {size};
}

struct Slot {
  std::int64_t bytes = 0;
  std::vector<Life> tenants;  // in the order of their lives, which do not overlap

  void add(const Buffer& buffer) {
    if (buffer.first <= buffer.last) tenants.insert(after(buffer), {buffer.first, buffer.last});
  }
  bool is_free_for(const Buffer& buffer) const {
    const auto next = after(buffer);
    return next == tenants.begin() || std::prev(next)->last < buffer.first;
  }
  // Dispatches between the buffer's live range and its neighbours' in time: a tight fit leaves the longest gaps free.
  int idle_around(const Buffer& buffer) const {
    int before = buffer.first, until = std::numeric_limits<int>::max() / 2;
    const auto next = after(buffer);
    if (next != tenants.end()) until = next->first - buffer.last;
    if (next != tenants.begin()) before = buffer.first - std::prev(next)->last;
    return std::min(before, until);
  }

 private:
  // The first tenant that lives after this buffer. Most come in the order of their lives.
  std::vector<Life>::const_iterator after(const Buffer& buffer) const {
    if (tenants.empty() || tenants.back().first <= buffer.last) return tenants.end();
    return std::upper_bound(tenants.begin(), tenants.end(), buffer.last,
                            [](int last, const Life& life) { return last < life.first; });
  }
};

// Arenas that each hold one buffer at a time.
class Pool {
 public:
  // The tightest slot that is free, or a new one. A slot's first tenant is its largest, because the largest come first,
  // so that later slots are never larger than earlier ones.
  std::size_t take(const Buffer& buffer, std::int64_t bytes, bool reuse) {
    return put(buffer, bytes, reuse ? tightest(buffer) : slots_.size());
  }

  // The slot that is idle the longest before and after, among the free ones up to this size; or a new one.
  std::size_t take_idle(const Buffer& buffer, std::int64_t bytes, std::int64_t largest) {
    std::size_t best = slots_.size();
    int best_idle = -1;
    for (std::size_t i = slots_.size(); i-- > 0 && slots_[i].bytes <= largest;) {
      if (slots_[i].bytes < bytes || !slots_[i].is_free_for(buffer)) continue;
      const int idle = slots_[i].idle_around(buffer);
      if (idle <= best_idle) continue;
      best = i;
      best_idle = idle;
    }
    return put(buffer, bytes, best);
  }

  const std::vector<Slot>& slots() const { return slots_; }

 private:
  std::size_t tightest(const Buffer& buffer) const {
    // Small tensors take a larger slot rather than one whose neighbours in time are this close (see place_in_pool): the
    // kernels of large ones keep a GPU busy alone.
    constexpr std::int64_t moderate = 8 << 20;
    constexpr int close = 8;
    const bool keeps_away = buffer.bytes <= moderate;
    std::size_t best = slots_.size();
    int best_idle = 0;
    bool best_is_close = true;
    for (std::size_t i = slots_.size(); i-- > 0;) {
      const bool is_larger = best != slots_.size() && slots_[i].bytes > slots_[best].bytes;
      if (is_larger && !(keeps_away && best_is_close)) break;
      // Usually the newest tenant conflicts.
      if (lives_overlap(newest_[i], buffer) || !slots_[i].is_free_for(buffer)) continue;
      const int idle = slots_[i].idle_around(buffer);
      const bool is_close = idle < close;
      const bool is_worse = keeps_away && is_close != best_is_close ? is_close : is_larger || idle > best_idle;
      if (best != slots_.size() && is_worse) continue;
      best = i;
      best_idle = idle;
      best_is_close = is_close;
    }
    return best;
  }

  std::size_t put(const Buffer& buffer, std::int64_t bytes, std::size_t slot) {
    if (slot == slots_.size()) {
      slots_.push_back({.bytes = bytes, .tenants = {}});
      newest_.emplace_back();
    }
    slots_[slot].add(buffer);
    newest_[slot] = {buffer.first, buffer.last};
    return slot;
  }

  std::vector<Slot> slots_;
  std::vector<Life> newest_;  // by slot; a separate array, because each buffer scans all of them
};

// Kernels that use the same slot wait for each other, and cannot be computed by their readers if another one overwrites
// their operands before these run. Small tensors, up to some number, therefore do not share slots, and the others share
// those that have been unused the longest.
void place_in_pool(Program& program, const std::vector<Buffer*>& largest_first, const Target& target) {
  constexpr std::int64_t small = 1 << 14;
  constexpr int most_small = 256;
  int small_ones = 0;
  Pool pool;
  for (Buffer* buffer : largest_first) {
    const std::int64_t bytes = round_up(buffer->bytes, target.offset_alignment);
    const bool is_small = buffer->bytes <= small;
    const bool spreads = target.plan && is_small && ++small_ones > most_small;
    buffer->arena = static_cast<int>(spreads ? pool.take_idle(*buffer, bytes, small)
                                             : pool.take(*buffer, bytes, target.plan && !is_small));
    buffer->offset = 0;
  }
  program.arenas.clear();
  for (const Slot& slot : pool.slots()) program.arenas.push_back(slot.bytes);
}

}  // namespace

void assign_memory(Program& program, const Target& target) {
  std::vector<Buffer*> buffers;
  for (Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena && buffer.within < 0) buffers.push_back(&buffer);
  const auto earlier = [&](const Buffer* a, const Buffer* b) { return target.separate_arenas && a->first < b->first; };
  detail::stable_sort(buffers, [&](const Buffer* a, const Buffer* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : earlier(a, b);
  });
  if (target.separate_arenas)
    place_in_pool(program, buffers, target);
  else
    place_in_one(program, buffers, target);
  for (Buffer& buffer : program.buffers) {
    if (buffer.where != Buffer::Where::arena || buffer.within < 0) continue;
    const Buffer& whole = program.buffers[static_cast<std::size_t>(buffer.within)];
    buffer.arena = whole.arena;
    buffer.offset = whole.offset + buffer.inside;
  }
}

void plan_memory(Program& program, const Target& target) {
  find_lives(program);
  assign_memory(program, target);
}

}  // namespace jerboa::detail
