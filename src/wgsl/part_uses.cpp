#include "wgsl/part_uses.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "lower/index.h"

namespace jerboa::wgsl {
namespace {

using detail::index;

// The memories that a kernel reads, and those that it writes.
void add_reads(const KernelSpec& kernel, std::set<int>& memories) {
  for (const Load& load : kernel.loads) memories.insert(load.binding);
  for (const TensorAccess& operand : kernel.operands)
    if (operand.binding >= 0) memories.insert(operand.binding);
}

void add_writes(const KernelSpec& kernel, std::set<int>& memories) {
  for (const Store& store : kernel.stores) memories.insert(store.binding);
  for (const TensorAccess& result : kernel.results)
    if (result.binding >= 0) memories.insert(result.binding);
}

}  // namespace

KernelSpec renumbered(KernelSpec kernel, const std::vector<int>& numbers) {
  const auto renumber = [&](int& binding) {
    if (binding >= 0) binding = numbers[index(binding)];
  };
  for (Load& load : kernel.loads) renumber(load.binding);
  for (Store& store : kernel.stores) renumber(store.binding);
  for (auto* list : {&kernel.operands, &kernel.results})
    for (TensorAccess& access : *list) renumber(access.binding);
  return kernel;
}

JoinedPart join_memories(const FoldedPart& part, const FoldedPart& other, const std::set<int>& separate) {
  JoinedPart joined{part, {}};
  std::vector<int>& buffers = joined.part.buffers;
  std::set<int> unshared;
  for (int i = 0; i < static_cast<int>(other.buffers.size()); ++i) {
    const int buffer = other.buffers[index(i)];
    const bool shares = other.folded.needs_buffer(i) && !separate.contains(i);
    int number = 0;
    while (index(number) < buffers.size() && (!shares || buffers[index(number)] != buffer ||
                                              !part.folded.needs_buffer(number) || unshared.contains(number)))
      ++number;
    if (index(number) == buffers.size()) buffers.push_back(buffer);
    if (!shares) unshared.insert(number);
    joined.numbers.push_back(number);
  }
  joined.part.key += fmt::format(" +{}{}({})", other.kernel, other.key, fmt::join(joined.numbers, " "));
  return joined;
}

PartUses::PartUses(const Program& program)
    : program_(program),
      readers_(program.buffers.size()),
      writers_(program.buffers.size()),
      shared_(program.buffers.size(), false) {
  for (std::size_t i = 0; i < program.cpu.dispatches.size(); ++i)
    for (const Dispatch::Part& part : program.cpu.dispatches[i].parts)
      parts_.push_back({part.kernel, part.buffers, part.label, {}, {}, static_cast<int>(i)});
  gone_.assign(parts_.size(), false);
  reads_.resize(parts_.size());
  writes_.resize(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) add_uses(i);
  for (std::size_t i = 0; i < program_.buffers.size(); ++i)
    if (const int whole = program_.buffers[i].within; whole >= 0) shared_[i] = shared_[index(whole)] = true;
  for (const auto* list : {&program_.outputs, &program_.captures})
    for (const Readable& readable : *list) shared_[index(readable.buffer)] = true;
}

const KernelSpec& PartUses::kernel_of(std::size_t part) const {
  return program_.cpu.kernels[index(parts_[part].kernel)];
}

std::vector<FoldedPart> PartUses::take() {
  std::vector<FoldedPart> kept;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!gone_[i]) kept.push_back(std::move(parts_[i]));
  return kept;
}

std::set<int> PartUses::reads_of(const FoldedPart& part) const {
  const KernelSpec& kernel = program_.cpu.kernels[index(part.kernel)];
  const FoldedKernels& folded = part.folded;
  std::set<int> memories;
  add_reads(kernel, memories);
  if (folded.scaled_rows) {
    memories.erase(kernel.operands[0].binding);
    add_reads(*folded.scaled_rows, memories);
  }
  if (folded.companion) {
    const int operand = folded.companion->operands[0].binding;
    const bool has_operand = memories.contains(operand);
    add_reads(*folded.companion, memories);
    if (!has_operand) memories.erase(operand);  // shared with the product, whose operand a norm computes
    memories.erase(folded.companion->stores.front().binding);
  }
  for (const KernelSpec& append : folded.appends) add_reads(append, memories);
  for (const auto& [memory, loop] : folded.computed) add_reads(loop, memories);
  for (const auto& [memory, finishing] : folded.finished) {
    add_reads(finishing.kernel, memories);
    memories.erase(memory);
  }
  for (const auto& [memory, loop] : folded.computed) memories.erase(memory);
  std::set<int> buffers;
  for (const int memory : memories) buffers.insert(part.buffers[index(memory)]);
  return buffers;
}

std::set<int> PartUses::writes_of(const FoldedPart& part) const {
  std::set<int> memories;
  add_writes(program_.cpu.kernels[index(part.kernel)], memories);
  for (const KernelSpec& append : part.folded.appends) add_writes(append, memories);
  for (const auto& [memory, finishing] : part.folded.finished) add_writes(finishing.kernel, memories);
  for (const auto& [memory, finishing] : part.folded.finished)
    if (!finishing.stores) memories.erase(memory);
  std::set<int> buffers;
  for (const int memory : memories) buffers.insert(part.buffers[index(memory)]);
  return buffers;
}

void PartUses::add_uses(std::size_t part) {
  reads_[part] = reads_of(parts_[part]);
  writes_[part] = writes_of(parts_[part]);
  for (const int buffer : reads_[part]) readers_[index(buffer)].insert(part);
  for (const int buffer : writes_[part]) writers_[index(buffer)].insert(part);
}

void PartUses::remove_uses(std::size_t part) {
  for (const int buffer : reads_[part]) readers_[index(buffer)].erase(part);
  for (const int buffer : writes_[part]) writers_[index(buffer)].erase(part);
  reads_[part].clear();
  writes_[part].clear();
}

void PartUses::replace(std::size_t part, FoldedPart with) {
  remove_uses(part);
  parts_[part] = std::move(with);
  add_uses(part);
}

void PartUses::drop(std::size_t part) {
  remove_uses(part);
  gone_[part] = true;
}

bool PartUses::is_internal(int buffer) const {
  return buffer_at(buffer).where == Buffer::Where::arena && !shared_[index(buffer)];
}

int PartUses::only_result(std::size_t part) const {
  const std::set<int>& written = written_buffers(part);
  return written.size() == 1 && is_internal(*written.begin()) ? *written.begin() : -1;
}

std::vector<std::size_t> PartUses::readers_of(std::size_t part, int result) const {
  const std::set<std::size_t>&writers = writers_[index(result)], &readers = readers_[index(result)];
  const auto next = writers.upper_bound(part);
  const auto end = next == writers.end() ? readers.end() : readers.upper_bound(*next);
  return {readers.upper_bound(part), end};
}

std::optional<std::size_t> PartUses::last_writer(int buffer, std::size_t before) const {
  const std::set<std::size_t>& writers = writers_[index(buffer)];
  const auto next = writers.lower_bound(before);
  if (next == writers.begin()) return std::nullopt;
  return *std::prev(next);
}

std::optional<std::size_t> PartUses::next_reader(int buffer, std::size_t after) const {
  const std::set<std::size_t>& readers = readers_[index(buffer)];
  const auto next = readers.upper_bound(after);
  if (next == readers.end()) return std::nullopt;
  return *next;
}

bool PartUses::share_memory(int a, int b) const {
  const Buffer &first = buffer_at(a), &second = buffer_at(b);
  const bool in_arena = first.where == Buffer::Where::arena, other_in_arena = second.where == Buffer::Where::arena;
  if (in_arena != other_in_arena) return false;
  return in_arena ? first.arena == second.arena : root_of(program_, a) == root_of(program_, b);
}

bool PartUses::can_run_later(std::size_t part, std::size_t until) const {
  const std::set<int>& inputs = read_buffers(part);
  for (std::size_t i = part + 1; i <= until; ++i)
    for (const int written : written_buffers(i))
      if (std::any_of(inputs.begin(), inputs.end(), [&](int input) { return share_memory(input, written); }))
        return false;
  return true;
}

bool PartUses::can_run_earlier(std::size_t part, std::size_t from, int result) const {
  for (const int input : read_buffers(part))
    if (const auto writer = last_writer(input, part); input != result && writer && *writer >= from) return false;
  const std::set<int>& outputs = written_buffers(part);
  for (std::size_t i = from; i < part; ++i)
    for (const auto* used : {&read_buffers(i), &written_buffers(i)})
      for (const int buffer : *used)
        if (std::any_of(outputs.begin(), outputs.end(), [&](int output) {
              return share_memory(output, buffer) && !(i == from && output == result && buffer == result);
            }))
          return false;
  return true;
}

}  // namespace jerboa::wgsl
