#include "lower/plan.h"

#include <algorithm>
#include <limits>

#include "lower/lives.h"

namespace jerboa::detail {
namespace {

std::int64_t aligned(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// The lowest, tightest gap among the buffers that live at the same time.
std::int64_t place(const Buffer& buffer, const std::vector<const Buffer*>& placed, std::int64_t alignment) {
  std::vector<const Buffer*> others;
  for (const Buffer* other : placed)
    if (lives_overlap(buffer, *other)) others.push_back(other);
  std::sort(others.begin(), others.end(), [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
  std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), end = 0;
  for (const Buffer* other : others) {
    const std::int64_t gap = other->offset - end;
    if (gap >= buffer.bytes && gap < best_gap) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, aligned(other->offset + other->bytes, alignment));
  }
  return best >= 0 ? best : end;
}

// One arena; each buffer has its place in it.
void place_in_one(Program& program, const std::vector<Buffer*>& largest_first, const Target& target) {
  std::vector<const Buffer*> placed;
  std::int64_t size = 0, next = 0;
  for (Buffer* buffer : largest_first) {
    if (target.plan) {
      buffer->offset = place(*buffer, placed, target.offset_alignment);
    } else {
      buffer->offset = next;
      next = aligned(next + buffer->bytes, target.offset_alignment);
    }
    size = std::max(size, buffer->offset + buffer->bytes);
    placed.push_back(buffer);
  }
  program.arenas = {aligned(size, target.offset_alignment)};
}

struct Slot {
  std::int64_t bytes = 0;
  std::vector<const Buffer*> tenants;

  bool is_free_for(const Buffer& buffer) const {
    return std::none_of(tenants.begin(), tenants.end(), [&](const Buffer* own) { return lives_overlap(*own, buffer); });
  }
  // Dispatches between the buffer's life and those of its neighbours in time: a tight row leaves the longest gaps free.
  int idle_around(const Buffer& buffer) const {
    int before = buffer.first, after = std::numeric_limits<int>::max() / 2;
    for (const Buffer* own : tenants) {
      if (own->last < buffer.first) before = std::min(before, buffer.first - own->last);
      if (own->first > buffer.last) after = std::min(after, own->first - buffer.last);
    }
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
    if (best == slots.size()) slots.push_back({aligned(buffer->bytes, target.offset_alignment), {}});
    slots[best].tenants.push_back(buffer);
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
