#include "lower/plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "base/integers.h"
#include "lower/lives.h"

namespace jerboa::detail {
namespace {

bool is_lower(const Buffer* a, const Buffer* b) { return a->offset < b->offset; }

// The lowest, tightest gap among the buffers with overlapping live ranges. `placed` is sorted by offset.
std::int64_t place(const Buffer& buffer, const std::vector<const Buffer*>& placed, std::int64_t alignment) {
  std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (const Buffer* other : placed) {
    if (!lives_overlap(buffer, *other)) continue;
    const std::int64_t gap = other->offset - end;
    if (gap >= buffer.bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, round_up(other->offset + other->bytes, alignment));
  }
  return best >= 0 ? best : end;
}

// One arena; each buffer gets an offset in it.
void place_in_one(Program& program, const std::vector<Buffer*>& largest_first, const Target& target) {
  std::vector<const Buffer*> placed;
  std::int64_t size = 0, next = 0;
  for (Buffer* buffer : largest_first) {
    if (target.plan) {
      buffer->offset = place(*buffer, placed, target.offset_alignment);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer, is_lower), buffer);
    } else {
      buffer->offset = next;
      next = round_up(next + buffer->bytes, target.offset_alignment);
    }
    size = std::max(size, buffer->offset + buffer->bytes);
  }
  program.arenas = {round_up(size, target.offset_alignment)};
}

struct Slot {
  std::int64_t bytes = 0;
  std::map<int, int> tenants;  // the last dispatch of each one's life by the first
  Life newest;                 // of them

  void add(const Buffer& buffer) {
    newest = {buffer.first, buffer.last};
    if (buffer.first <= buffer.last) tenants.emplace(buffer.first, buffer.last);
  }
  bool is_free_for(const Buffer& buffer) const {
    // Usually the newest one conflicts.
    if (newest.first <= buffer.last && buffer.first <= newest.last) return false;
    const auto after = tenants.upper_bound(buffer.last);
    return after == tenants.begin() || std::prev(after)->second < buffer.first;
  }
  // Dispatches between the buffer's live range and its neighbours' in time: a tight fit leaves the longest gaps free.
  int idle_around(const Buffer& buffer) const {
    int before = buffer.first, after = std::numeric_limits<int>::max() / 2;
    const auto next = tenants.upper_bound(buffer.last);
    if (next != tenants.end()) after = next->first - buffer.last;
    if (next != tenants.begin()) before = buffer.first - std::prev(next)->second;
    return std::min(before, after);
  }
};

// A slot's first tenant is its largest, because the largest come first; the tightest slot that is free takes a buffer.
void place_in_pool(Program& program, const std::vector<Buffer*>& largest_first, const Target& target) {
  std::vector<Slot> slots;
  for (Buffer* buffer : largest_first) {
    std::size_t best = slots.size();
    for (std::size_t i = 0; target.plan && i < slots.size(); ++i) {
      if (!slots[i].is_free_for(*buffer)) continue;
      const auto tightness = [&](const Slot& slot) { return std::pair(slot.bytes, slot.idle_around(*buffer)); };
      if (best == slots.size() || tightness(slots[i]) < tightness(slots[best])) best = i;
    }
    if (best == slots.size()) slots.push_back({round_up(buffer->bytes, target.offset_alignment), {}, {}});
    slots[best].add(*buffer);
    buffer->arena = static_cast<int>(best);
    buffer->offset = 0;
  }
  program.arenas.clear();
  for (const Slot& slot : slots) program.arenas.push_back(slot.bytes);
}

}  // namespace

void assign_memory(Program& program, const Target& target) {
  std::vector<Buffer*> buffers;
  for (Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena && buffer.within < 0) buffers.push_back(&buffer);
  const auto earlier = [&](const Buffer* a, const Buffer* b) { return target.separate_arenas && a->first < b->first; };
  std::stable_sort(buffers.begin(), buffers.end(), [&](const Buffer* a, const Buffer* b) {
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
