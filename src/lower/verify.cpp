#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>

#include "lower/in_place.h"
#include "lower/lives.h"
#include "lower/target.h"
#include "lower/verify_gpu.h"

namespace jerboa {
namespace {

class Verifier {
 public:
  Verifier(const Program& program, const Target& target) : program_(program), target_(target) {}

  void run() const {
    check_numbers();
    check_places();
    check_sharing();
    for (std::size_t i = 0; i < program_.dispatches.size(); ++i) check_bindings(i);
    check_order();
    check_in_place();
    detail::verify_gpu(program_);
  }

 private:
  template <class... Args>
  [[noreturn]] static void fail(fmt::format_string<Args...> text, Args&&... args) {
    throw GraphError("invalid program: " + fmt::format(text, std::forward<Args>(args)...));
  }

  const Buffer& buffer(int number) const { return program_.buffers[static_cast<std::size_t>(number)]; }
  const KernelSpec& kernel(const Dispatch::Part& part) const {
    return program_.kernels[static_cast<std::size_t>(part.kernel)];
  }

  void check_numbers() const {
    const auto is_in = [](int number, const auto& list) {
      return number >= 0 && static_cast<std::size_t>(number) < list.size();
    };
    for (std::size_t i = 0; i < program_.dispatches.size(); ++i)
      for (const Dispatch::Part& part : program_.dispatches[i].parts) {
        if (!is_in(part.kernel, program_.kernels)) fail("dispatch {} has no kernel {}", i, part.kernel);
        if (static_cast<int>(part.buffers.size()) != kernel(part).bindings)
          fail("dispatch {} binds {} buffers to a kernel of {}", i, part.buffers.size(), kernel(part).bindings);
        for (const int number : part.buffers)
          if (!is_in(number, program_.buffers)) fail("dispatch {} has no buffer {}", i, number);
      }
    for (const auto* list : {&program_.outputs, &program_.captures})
      for (const Readable& readable : *list)
        if (!is_in(readable.buffer, program_.buffers)) fail("{} has no buffer {}", readable.name, readable.buffer);
    for (const Buffer& own : program_.buffers)
      if (own.where == Buffer::Where::arena && !is_in(own.arena, program_.arenas))
        fail("{} has no arena {}", own.name, own.arena);
    std::set<int> wholes;
    for (const Buffer& own : program_.buffers) {
      if (own.within >= 0) check_within(own);
      wholes.insert(own.within);
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      if (program_.buffers[i].where == Buffer::Where::pool && !wholes.contains(static_cast<int>(i)))
        fail("{} is a pool that holds no tensor", program_.buffers[i].name);
  }

  // What is part of another stands inside it, in memory of the same kind.
  void check_within(const Buffer& own) const {
    if (static_cast<std::size_t>(own.within) >= program_.buffers.size()) fail("{} is within no buffer", own.name);
    const Buffer& whole = buffer(own.within);
    const bool alike =
        own.where == Buffer::Where::arena
            ? whole.where == Buffer::Where::arena && own.arena == whole.arena && own.offset == whole.offset + own.inside
            : own.where == Buffer::Where::storage && whole.where == Buffer::Where::pool && own.offset == own.inside;
    if (!alike || whole.within >= 0 || own.inside < 0 || own.inside % target_.offset_alignment != 0 ||
        own.inside + own.bytes > whole.bytes)
      fail("{} does not stand inside {}", own.name, whole.name);
  }

  // Every activation stands inside its arena, and is in use no longer than the plan says.
  void check_places() const {
    const auto lives = detail::lives_of(program_);
    std::vector<std::int64_t> largest(program_.arenas.size(), 0);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& own = program_.buffers[i];
      if (own.where != Buffer::Where::arena || lives[i].last < 0) continue;
      const auto arena = static_cast<std::size_t>(own.arena);
      if (own.offset < 0 || own.offset % target_.offset_alignment != 0 ||
          own.offset + own.bytes > program_.arenas[arena])
        fail("{} stands outside its arena or is not aligned", own.name);
      if (own.first > lives[i].first || own.last < lives[i].last)
        fail("{} is planned for dispatches {} to {} and in use from {} to {}", own.name, own.first, own.last,
             lives[i].first, lives[i].last);
      largest[arena] = std::max(largest[arena], own.bytes);
    }
    // A tensor over the limit is the host's to split; a pool of smaller ones need not be so large.
    for (std::size_t i = 0; i < largest.size(); ++i)
      if (program_.arenas[i] > target_.max_buffer_bytes && largest[i] <= target_.max_buffer_bytes)
        fail("arena {} has {} bytes, over the {} of a buffer, and no tensor that large", i, program_.arenas[i],
             target_.max_buffer_bytes);
  }

  void check_sharing() const {
    std::vector<const Buffer*> arena;
    std::map<int, std::vector<const Buffer*>> parts;
    std::set<std::pair<Buffer::Where, std::string>> names;
    for (const Buffer& own : program_.buffers) {
      if (own.within >= 0) parts[own.within].push_back(&own);
      if (own.where == Buffer::Where::arena && own.last >= 0 && own.within < 0) arena.push_back(&own);
      const bool named = own.where == Buffer::Where::storage || own.where == Buffer::Where::input;
      if (named && !names.emplace(own.where, own.name).second) fail("{} has two buffers", own.name);
    }
    check_lives(std::move(arena));
    for (auto& [whole, list] : parts) {
      std::sort(list.begin(), list.end(), [](const Buffer* a, const Buffer* b) { return a->inside < b->inside; });
      for (std::size_t i = 1; i < list.size(); ++i)
        if (list[i - 1]->inside + list[i - 1]->bytes > list[i]->inside)
          fail("{} and {} overlap in {}", list[i - 1]->name, list[i]->name, buffer(whole).name);
    }
  }

  // Goes through the dispatches with the buffers that are in use, in the order of their places in memory.
  void check_lives(std::vector<const Buffer*> buffers) const {
    std::sort(buffers.begin(), buffers.end(), [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
    using Place = std::pair<int, std::int64_t>;  // arena and offset
    std::map<Place, const Buffer*> in_use;
    std::multimap<int, const Buffer*> by_end;
    const auto place_of = [](const Buffer& own) { return Place(own.arena, own.offset); };
    for (const Buffer* own : buffers) {
      for (; !by_end.empty() && by_end.begin()->first < own->first; by_end.erase(by_end.begin()))
        in_use.erase(place_of(*by_end.begin()->second));
      if (own->first > own->last || own->bytes == 0) continue;
      const auto next = in_use.lower_bound(place_of(*own));
      if (next != in_use.end()) check_pair(*own, *next->second);
      if (next != in_use.begin()) check_pair(*std::prev(next)->second, *own);
      in_use.emplace(place_of(*own), own);
      by_end.emplace(own->last, own);
    }
  }

  // Two that are in use at the same time, the lower one first.
  void check_pair(const Buffer& low, const Buffer& high) const {
    if (low.arena != high.arena) return;
    if (high.offset < low.offset + low.bytes) fail("{} and {} share memory while both are in use", low.name, high.name);
    if (target_.separate_arenas)
      fail("{} and {} stand in arena {} at the same time, which must hold one at a time", low.name, high.name,
           low.arena);
  }

  void check_bindings(std::size_t number) const {
    for (const Dispatch::Part& part : program_.dispatches[number].parts) {
      std::set<int> bound;
      int count = 0;
      for (const int own : part.buffers) {
        if (!bound.insert(own).second) fail("dispatch {} binds {} twice", number, buffer(own).name);
        count += detail::binding_count(buffer(own).bytes, target_);
      }
      // Hosts run ops on whole tensors in several dispatches where they must.
      if (kernel(part).kind == KernelSpec::Kind::whole || count <= target_.max_bindings) continue;
      std::vector<std::string_view> names;
      for (const int own : part.buffers) names.push_back(buffer(own).name);
      fail("dispatch {} needs {} bindings where {} are allowed: {}", number, count, target_.max_bindings,
           fmt::join(names, ", "));
    }
  }

  // Nothing is read before it is written, and parts of one dispatch, which run in any order, leave each other alone.
  void check_order() const {
    std::vector<bool> written(program_.buffers.size(), false);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      written[i] = program_.buffers[i].where != Buffer::Where::arena;
    std::map<int, std::vector<int>> parts;  // by the buffer that they are within
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      if (program_.buffers[i].within >= 0) parts[program_.buffers[i].within].push_back(static_cast<int>(i));
    const auto is_written = [&](int own) {
      if (written[static_cast<std::size_t>(own)]) return true;
      const int whole = buffer(own).within;
      if (whole >= 0) return static_cast<bool>(written[static_cast<std::size_t>(whole)]);
      const auto found = parts.find(own);
      return found != parts.end() && std::all_of(found->second.begin(), found->second.end(), [&](int part) {
               return static_cast<bool>(written[static_cast<std::size_t>(part)]);
             });
    };
    // A buffer overlaps itself, the one that it is within, and those within it.
    const auto any_overlaps = [&](const std::set<int>& list, int own) {
      if (list.contains(own) || list.contains(buffer(own).within)) return true;
      const auto found = parts.find(own);
      return found != parts.end() &&
             std::any_of(found->second.begin(), found->second.end(), [&](int part) { return list.contains(part); });
    };
    for (std::size_t number = 0; number < program_.dispatches.size(); ++number) {
      std::set<int> writes, reads;
      for (const Dispatch::Part& part : program_.dispatches[number].parts) {
        const auto written_here = written_bindings(kernel(part)), read_here = detail::read_bindings(kernel(part));
        for (std::size_t b = 0; b < part.buffers.size(); ++b) {
          const int own = part.buffers[b];
          const std::string& name = buffer(own).name;
          if (read_here[b] && !is_written(own)) fail("dispatch {} reads {} before it is written", number, name);
          if (written_here[b] && (any_overlaps(reads, own) || any_overlaps(writes, own)))
            fail("dispatch {} writes {} while another part uses it", number, name);
          if (read_here[b] && any_overlaps(writes, own))
            fail("dispatch {} reads {} while another part writes it", number, name);
          if (written_here[b] && buffer(own).where != Buffer::Where::arena &&
              buffer(own).where != Buffer::Where::storage && buffer(own).where != Buffer::Where::pool)
            fail("dispatch {} writes {}, which is only to be read", number, name);
        }
        for (std::size_t b = 0; b < part.buffers.size(); ++b) {
          if (written_here[b]) writes.insert(part.buffers[b]);
          if (read_here[b]) reads.insert(part.buffers[b]);
        }
      }
      for (const int own : writes) written[static_cast<std::size_t>(own)] = true;
    }
    for (const auto* list : {&program_.outputs, &program_.captures})
      for (const Readable& readable : *list)
        if (!is_written(readable.buffer)) fail("{} is read after the run and never written", readable.name);
  }

  // A kernel that runs element by element reads of what it writes only the same element.
  void check_in_place() const {
    for (const Dispatch& dispatch : program_.dispatches)
      for (const Dispatch::Part& part : dispatch.parts) {
        const KernelSpec& own = kernel(part);
        if (own.kind == KernelSpec::Kind::whole) continue;
        for (const Store& store : own.stores) {
          const auto is_other = [&](const Load& load) {
            return load.binding == store.binding && !detail::reads_what_it_writes(own, load, store);
          };
          const auto is_operand = [&](const TensorAccess& operand) { return operand.binding == store.binding; };
          if (std::any_of(own.loads.begin(), own.loads.end(), is_other) ||
              std::any_of(own.operands.begin(), own.operands.end(), is_operand))
            fail("{} reads other elements of {} than it writes", part.label,
                 buffer(part.buffers[static_cast<std::size_t>(store.binding)]).name);
        }
      }
  }

  const Program& program_;
  const Target& target_;
};

}  // namespace

void verify(const Program& program, const Target& target) { Verifier(program, target).run(); }

}  // namespace jerboa
