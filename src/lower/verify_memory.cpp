#include "lower/verify_memory.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "lower/invalid_program.h"
#include "lower/lives.h"
#include "lower/target.h"

namespace jerboa::detail {
namespace {

class MemoryVerifier {
 public:
  MemoryVerifier(const ProgramMemory& memory, const Target& target) : memory_(memory), target_(target) {}

  void run() const {
    for (const std::int64_t bytes : memory_.arenas)
      if (bytes < 0 || bytes > most_bytes) fail_program("an arena of {} bytes is not possible", bytes);
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

  void check(const Buffer& buffer) const {
    // All other sums of these stay far below 64-bit overflow.
    for (const std::int64_t number : {buffer.bytes, buffer.offset, buffer.inside})
      if (number < 0 || number > most_bytes)
        fail_program("{} has an impossible size or offset, {}", buffer.name, number);
    if (buffer.elements.lower_bound() < 0 || bytes_of({buffer.dtype, {buffer.elements}}) > buffer.bytes)
      fail_program("{} has {} elements in {} bytes", buffer.name, buffer.elements.str(), buffer.bytes);
    if (buffer.within != -1) check_within(buffer);
    if (buffer.where == Buffer::Where::arena) {
      if (!is_index_of(buffer.arena, memory_.arenas.size()))
        fail_program("{} has no arena {}", buffer.name, buffer.arena);
      if (buffer.offset % target_.offset_alignment != 0 ||
          buffer.offset + buffer.bytes > memory_.arenas[static_cast<std::size_t>(buffer.arena)])
        fail_program("{} is outside its arena or not aligned", buffer.name);
    }
    if (buffer.where == Buffer::Where::constant) {
      if (!is_index_of(buffer.constant, memory_.constants.size()))
        fail_program("{} has no constant {}", buffer.name, buffer.constant);
      const HostTensor& values = memory_.constants[static_cast<std::size_t>(buffer.constant)];
      if (values.dtype() != buffer.dtype || static_cast<std::int64_t>(values.bytes().size()) != buffer.bytes)
        fail_program("{} does not match its constant", buffer.name);
    }
  }

  // Checks that a part of another buffer lies inside it, in memory of the same kind.
  void check_within(const Buffer& tensor_buffer) const {
    if (!is_index_of(tensor_buffer.within, memory_.buffers.size()))
      fail_program("{} is not within any buffer", tensor_buffer.name);
    const Buffer& whole = buffer(tensor_buffer.within);
    const bool alike = tensor_buffer.where == Buffer::Where::arena
                           ? whole.where == Buffer::Where::arena && tensor_buffer.arena == whole.arena &&
                                 tensor_buffer.offset == whole.offset + tensor_buffer.inside
                           : tensor_buffer.where == Buffer::Where::storage && whole.where == Buffer::Where::pool &&
                                 tensor_buffer.offset == tensor_buffer.inside;
    if (!alike || whole.within >= 0 || tensor_buffer.inside % target_.offset_alignment != 0 ||
        tensor_buffer.inside + tensor_buffer.bytes > whole.bytes)
      fail_program("{} is not inside {}", tensor_buffer.name, whole.name);
  }

  void check_pools() const {
    std::set<int> wholes;
    for (const Buffer& buffer : memory_.buffers) wholes.insert(buffer.within);
    for (std::size_t i = 0; i < memory_.buffers.size(); ++i)
      if (memory_.buffers[i].where == Buffer::Where::pool && !wholes.contains(static_cast<int>(i)))
        fail_program("{} is a pool that holds no tensor", memory_.buffers[i].name);
  }

  // The host splits a tensor over the limit; a pool of smaller ones need not be that large.
  void check_arena_sizes() const {
    std::vector<std::int64_t> largest(memory_.arenas.size(), 0);
    for (const Buffer& buffer : memory_.buffers)
      if (buffer.where == Buffer::Where::arena)
        largest[static_cast<std::size_t>(buffer.arena)] =
            std::max(largest[static_cast<std::size_t>(buffer.arena)], buffer.bytes);
    for (std::size_t i = 0; i < largest.size(); ++i)
      if (memory_.arenas[i] > target_.max_buffer_bytes && largest[i] <= target_.max_buffer_bytes)
        fail_program("arena {} has {} bytes, over the {} of a buffer, and no tensor that large", i, memory_.arenas[i],
                     target_.max_buffer_bytes);
  }

  void check_names() const {
    std::set<std::pair<Buffer::Where, std::string_view>> names;
    for (const Buffer& buffer : memory_.buffers) {
      const bool named = buffer.where == Buffer::Where::storage || buffer.where == Buffer::Where::input;
      if (named && !names.emplace(buffer.where, buffer.name).second) fail_program("{} has two buffers", buffer.name);
    }
  }

  void check_parts() const {
    std::map<int, std::vector<const Buffer*>> parts;
    for (const Buffer& buffer : memory_.buffers)
      if (buffer.within >= 0) parts[buffer.within].push_back(&buffer);
    for (auto& [whole, list] : parts) {
      std::sort(list.begin(), list.end(), [](const Buffer* a, const Buffer* b) { return a->inside < b->inside; });
      for (std::size_t i = 1; i < list.size(); ++i)
        if (list[i - 1]->inside + list[i - 1]->bytes > list[i]->inside)
          fail_program("{} and {} overlap in {}", list[i - 1]->name, list[i]->name, buffer(whole).name);
    }
  }

  void check_sharing() const {
    std::vector<std::vector<const Buffer*>> tenants(memory_.arenas.size());
    for (const Buffer& buffer : memory_.buffers)
      if (buffer.where == Buffer::Where::arena && buffer.last >= 0 && buffer.within < 0)
        tenants[static_cast<std::size_t>(buffer.arena)].push_back(&buffer);
    for (auto& list : tenants) {
      std::sort(list.begin(), list.end(), [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
      check_tenants(list);
    }
  }

  // In order of first use: live buffers do not overlap, so only neighbours need checking.
  void check_tenants(const std::vector<const Buffer*>& by_first) const {
    const auto by_place = [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; };
    const auto by_last = [](const Buffer* a, const Buffer* b) { return a->last < b->last; };
    std::multiset<const Buffer*, decltype(by_place)> in_use(by_place);
    std::multiset<const Buffer*, decltype(by_last)> ending(by_last);
    for (const Buffer* buffer : by_first) {
      while (!ending.empty() && (*ending.begin())->last < buffer->first) {
        const auto [from, to] = in_use.equal_range(*ending.begin());
        in_use.erase(std::find(from, to, *ending.begin()));
        ending.erase(ending.begin());
      }
      if (buffer->last < buffer->first || (buffer->bytes == 0 && !target_.separate_arenas)) continue;
      const auto next = in_use.lower_bound(buffer);
      if (next != in_use.end()) check_disjoint(*buffer, **next);
      if (next != in_use.begin()) check_disjoint(**std::prev(next), *buffer);
      if (target_.separate_arenas && !in_use.empty())
        fail_program("{} and {} are in arena {} at the same time, which must hold one at a time",
                     (*in_use.begin())->name, buffer->name, buffer->arena);
      in_use.insert(buffer);
      ending.insert(buffer);
    }
  }

  static void check_disjoint(const Buffer& first, const Buffer& second) {
    if (first.offset + first.bytes > second.offset)
      fail_program("{} and {} share memory while both are in use", first.name, second.name);
  }

  void check(const Readable& readable) const {
    if (!is_index_of(readable.buffer, memory_.buffers.size()))
      fail_program("{} has no buffer {}", readable.name, readable.buffer);
    if (readable.strides.size() != readable.shape.size())
      fail_program("{} has {} strides for {} sizes", readable.name, readable.strides.size(), readable.shape.size());
  }

  const ProgramMemory& memory_;
  const Target& target_;
};

}  // namespace

void verify_memory(const ProgramMemory& memory, const Target& target) { MemoryVerifier(memory, target).run(); }

}  // namespace jerboa::detail
