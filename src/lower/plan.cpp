#include "lower/plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>

namespace jerboa {
namespace {

std::int64_t aligned(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::vector<bool> read_bindings(const KernelSpec& kernel) {
  std::vector<bool> read(static_cast<std::size_t>(kernel.bindings), false);
  for (const Load& load : kernel.loads) read[static_cast<std::size_t>(load.binding)] = true;
  for (const TensorAccess& operand : kernel.operands)
    if (operand.binding >= 0) read[static_cast<std::size_t>(operand.binding)] = true;
  return read;
}

void find_lives(Program& program) {
  for (Buffer& buffer : program.buffers) {
    buffer.first = std::numeric_limits<int>::max();
    buffer.last = -1;
  }
  for (std::size_t i = 0; i < program.dispatches.size(); ++i)
    for (const Dispatch::Part& part : program.dispatches[i].parts)
      for (const int number : part.buffers) {
        Buffer& buffer = program.buffers[static_cast<std::size_t>(number)];
        buffer.first = std::min(buffer.first, static_cast<int>(i));
        buffer.last = std::max(buffer.last, static_cast<int>(i));
      }
  // What is read after the run lives to its end.
  for (const auto* list : {&program.outputs, &program.captures})
    for (const Readable& readable : *list)
      program.buffers[static_cast<std::size_t>(readable.buffer)].last = static_cast<int>(program.dispatches.size());
}

bool lives_overlap(const Buffer& a, const Buffer& b) { return a.first <= b.last && b.first <= a.last; }

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

}  // namespace

std::vector<bool> written_bindings(const KernelSpec& kernel) {
  std::vector<bool> written(static_cast<std::size_t>(kernel.bindings), false);
  for (const Store& store : kernel.stores) written[static_cast<std::size_t>(store.binding)] = true;
  for (const TensorAccess& result : kernel.results)
    if (result.binding >= 0) written[static_cast<std::size_t>(result.binding)] = true;
  return written;
}

void detail::plan_memory(Program& program, const Target& target) {
  find_lives(program);
  std::vector<Buffer*> waiting;
  for (Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena) waiting.push_back(&buffer);
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  std::vector<const Buffer*> placed;
  std::int64_t size = 0, next = 0;
  for (Buffer* buffer : waiting) {
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

void verify(const Program& program, const Target& target) {
  const auto fail = [](const std::string& text) { throw GraphError("invalid program: " + text); };
  std::vector<const Buffer*> arena;
  for (const Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena && buffer.last >= 0) arena.push_back(&buffer);
  for (const Buffer* buffer : arena)
    if (buffer->offset < 0 || buffer->offset % target.offset_alignment != 0 ||
        buffer->offset + buffer->bytes > program.arenas.at(static_cast<std::size_t>(buffer->arena)))
      fail(fmt::format("{} stands outside its arena or is not aligned", buffer->name));
  for (std::size_t i = 0; i < arena.size(); ++i)
    for (std::size_t j = i + 1; j < arena.size(); ++j) {
      const Buffer &a = *arena[i], &b = *arena[j];
      const bool share = a.arena == b.arena && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      if (share && lives_overlap(a, b))
        fail(fmt::format("{} and {} share memory while both are in use", a.name, b.name));
    }
  std::vector<bool> written(program.buffers.size(), false);
  for (std::size_t i = 0; i < program.buffers.size(); ++i)
    written[i] = program.buffers[i].where != Buffer::Where::arena;
  for (std::size_t number = 0; number < program.dispatches.size(); ++number) {
    std::vector<int> writes, reads;
    for (const Dispatch::Part& part : program.dispatches[number].parts) {
      const KernelSpec& kernel = program.kernels.at(static_cast<std::size_t>(part.kernel));
      if (static_cast<int>(part.buffers.size()) != kernel.bindings)
        fail(fmt::format("dispatch {} binds the wrong number of buffers", number));
      const auto written_here = written_bindings(kernel), read_here = read_bindings(kernel);
      for (std::size_t b = 0; b < part.buffers.size(); ++b) {
        const auto buffer = static_cast<std::size_t>(part.buffers[b]);
        if (read_here[b] && !written[buffer])
          fail(fmt::format("dispatch {} reads {} before it is written", number, program.buffers[buffer].name));
        // Parts of one dispatch run in any order.
        if (written_here[b] && (std::find(reads.begin(), reads.end(), part.buffers[b]) != reads.end() ||
                                std::find(writes.begin(), writes.end(), part.buffers[b]) != writes.end()))
          fail(fmt::format("dispatch {} writes {} while another part uses it", number, program.buffers[buffer].name));
        if (read_here[b] && std::find(writes.begin(), writes.end(), part.buffers[b]) != writes.end())
          fail(fmt::format("dispatch {} reads {} while another part writes it", number, program.buffers[buffer].name));
      }
      for (std::size_t b = 0; b < part.buffers.size(); ++b) {
        if (written_here[b]) writes.push_back(part.buffers[b]);
        if (read_here[b]) reads.push_back(part.buffers[b]);
      }
    }
    for (const int buffer : writes) written[static_cast<std::size_t>(buffer)] = true;
  }
}

}  // namespace jerboa
