#include "lower/verify_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include <jerboa/base/error.h>

#include "lower/lives.h"
#include "lower/target.h"

namespace jerboa::detail {
namespace {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw GraphError("invalid program: " + fmt::format(text, std::forward<Args>(args)...));
}

bool is_in(int number, std::size_t size) { return number >= 0 && static_cast<std::size_t>(number) < size; }

class MemoryVerifier {
 public:
  MemoryVerifier(const ProgramMemory& memory, const Target& target) : memory_(memory), target_(target) {}

  void run() const {
    for (const std::int64_t bytes : memory_.arenas)
      if (bytes < 0 || bytes > most_bytes) fail("an arena of {} bytes is not possible", bytes);
    for (const Buffer& buffer : memory_.buffers) check(buffer);
    check_pools();
    check_arena_sizes();
    check_names();
    check_parts();
    check_sharing();
    for (const auto* list : {&memory_.outputs, &memory_.captures})
      for (const Readable& readable : *list) check(readable);
  }

 private:
  const Buffer& buffer(int number) const { return memory_.buffers[static_cast<std::size_t>(number)]; }

  void check(const Buffer& own) const {
    // All other sums of these stay far below the limits of 64 bits.
    for (const std::int64_t number : {own.bytes, own.offset, own.inside})
      if (number < 0 || number > most_bytes) fail("{} has an impossible size or place, {}", own.name, number);
    if (own.elements.lower_bound() < 0 || bytes_of({own.dtype, {own.elements}}) > own.bytes)
      fail("{} has {} elements in {} bytes", own.name, own.elements.str(), own.bytes);
    if (own.within != -1) check_within(own);
    if (own.where == Buffer::Where::arena) {
      if (!is_in(own.arena, memory_.arenas.size())) fail("{} has no arena {}", own.name, own.arena);
      if (own.offset % target_.offset_alignment != 0 ||
          own.offset + own.bytes > memory_.arenas[static_cast<std::size_t>(own.arena)])
        fail("{} stands outside its arena or is not aligned", own.name);
    }
    if (own.where == Buffer::Where::constant) {
      if (!is_in(own.constant, memory_.constants.size())) fail("{} has no constant {}", own.name, own.constant);
      const HostTensor& values = memory_.constants[static_cast<std::size_t>(own.constant)];
      if (values.dtype() != own.dtype || static_cast<std::int64_t>(values.bytes().size()) != own.bytes)
        fail("{} does not fit its constant", own.name);
    }
  }

  // What is part of another stands inside it, in memory of the same kind.
  void check_within(const Buffer& own) const {
    if (!is_in(own.within, memory_.buffers.size())) fail("{} is within no buffer", own.name);
    const Buffer& whole = buffer(own.within);
    const bool alike =
        own.where == Buffer::Where::arena
            ? whole.where == Buffer::Where::arena && own.arena == whole.arena && own.offset == whole.offset + own.inside
            : own.where == Buffer::Where::storage && whole.where == Buffer::Where::pool && own.offset == own.inside;
    if (!alike || whole.within >= 0 || own.inside % target_.offset_alignment != 0 ||
        own.inside + own.bytes > whole.bytes)
      fail("{} does not stand inside {}", own.name, whole.name);
  }

  void check_pools() const {
    std::set<int> wholes;
    for (const Buffer& own : memory_.buffers) wholes.insert(own.within);
    for (std::size_t i = 0; i < memory_.buffers.size(); ++i)
      if (memory_.buffers[i].where == Buffer::Where::pool && !wholes.contains(static_cast<int>(i)))
        fail("{} is a pool that holds no tensor", memory_.buffers[i].name);
  }

  // A tensor over the limit is the host's to split; a pool of smaller ones need not be so large.
  void check_arena_sizes() const {
    std::vector<std::int64_t> largest(memory_.arenas.size(), 0);
    for (const Buffer& own : memory_.buffers)
      if (own.where == Buffer::Where::arena)
        largest[static_cast<std::size_t>(own.arena)] =
            std::max(largest[static_cast<std::size_t>(own.arena)], own.bytes);
    for (std::size_t i = 0; i < largest.size(); ++i)
      if (memory_.arenas[i] > target_.max_buffer_bytes && largest[i] <= target_.max_buffer_bytes)
        fail("arena {} has {} bytes, over the {} of a buffer, and no tensor that large", i, memory_.arenas[i],
             target_.max_buffer_bytes);
  }

  void check_names() const {
    std::set<std::pair<Buffer::Where, std::string_view>> names;
    for (const Buffer& own : memory_.buffers) {
      const bool named = own.where == Buffer::Where::storage || own.where == Buffer::Where::input;
      if (named && !names.emplace(own.where, own.name).second) fail("{} has two buffers", own.name);
    }
  }

  void check_parts() const {
    std::map<int, std::vector<const Buffer*>> parts;
    for (const Buffer& own : memory_.buffers)
      if (own.within >= 0) parts[own.within].push_back(&own);
    for (auto& [whole, list] : parts) {
      std::sort(list.begin(), list.end(), [](const Buffer* a, const Buffer* b) { return a->inside < b->inside; });
      for (std::size_t i = 1; i < list.size(); ++i)
        if (list[i - 1]->inside + list[i - 1]->bytes > list[i]->inside)
          fail("{} and {} overlap in {}", list[i - 1]->name, list[i]->name, buffer(whole).name);
    }
  }

  void check_sharing() const {
    std::vector<std::vector<const Buffer*>> tenants(memory_.arenas.size());
    for (const Buffer& own : memory_.buffers)
      if (own.where == Buffer::Where::arena && own.last >= 0 && own.within < 0)
        tenants[static_cast<std::size_t>(own.arena)].push_back(&own);
    for (auto& list : tenants) {
      std::sort(list.begin(), list.end(), [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
      check_tenants(list);
    }
  }

  // In the order in which they begin; those that are in use do not overlap, so that only neighbours are to be looked
  // at.
  void check_tenants(const std::vector<const Buffer*>& by_first) const {
    const auto by_place = [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; };
    const auto by_last = [](const Buffer* a, const Buffer* b) { return a->last < b->last; };
    std::multiset<const Buffer*, decltype(by_place)> in_use(by_place);
    std::multiset<const Buffer*, decltype(by_last)> ending(by_last);
    for (const Buffer* own : by_first) {
      while (!ending.empty() && (*ending.begin())->last < own->first) {
        const auto [from, to] = in_use.equal_range(*ending.begin());
        in_use.erase(std::find(from, to, *ending.begin()));
        ending.erase(ending.begin());
      }
      if (own->last < own->first || (own->bytes == 0 && !target_.separate_arenas)) continue;
      const auto next = in_use.lower_bound(own);
      if (next != in_use.end()) check_apart(*own, **next);
      if (next != in_use.begin()) check_apart(**std::prev(next), *own);
      if (target_.separate_arenas && !in_use.empty())
        fail("{} and {} stand in arena {} at the same time, which must hold one at a time", (*in_use.begin())->name,
             own->name, own->arena);
      in_use.insert(own);
      ending.insert(own);
    }
  }

  static void check_apart(const Buffer& first, const Buffer& second) {
    if (first.offset + first.bytes > second.offset)
      fail("{} and {} share memory while both are in use", first.name, second.name);
  }

  void check(const Readable& readable) const {
    if (!is_in(readable.buffer, memory_.buffers.size())) fail("{} has no buffer {}", readable.name, readable.buffer);
    if (readable.strides.size() != readable.shape.size())
      fail("{} has {} strides for {} sizes", readable.name, readable.strides.size(), readable.shape.size());
  }

  const ProgramMemory& memory_;
  const Target& target_;
};

}  // namespace

void verify_memory(const ProgramMemory& memory, const Target& target) { MemoryVerifier(memory, target).run(); }

}  // namespace jerboa::detail
