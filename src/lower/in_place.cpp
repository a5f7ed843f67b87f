#include "lower/in_place.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "lower/emit.h"
#include "lower/index.h"
#include "lower/lives.h"

namespace jerboa::detail {
namespace {

class TakeOver {
 public:
  explicit TakeOver(Program& program) : program_(program), lives_(lives_of(program)), now_(program.buffers.size()) {
    std::iota(now_.begin(), now_.end(), 0);
    for (std::size_t i = 0; i < program.cpu.kernels.size(); ++i)
      kernel_numbers_.emplace(print(program.cpu.kernels[i]), static_cast<int>(i));
    is_part_.assign(program.buffers.size(), false);
    for (std::size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].within >= 0) is_part_[i] = is_part_[index(program.buffers[i].within)] = true;
  }

  void run() {
    for (std::size_t number = 0; number < program_.cpu.dispatches.size(); ++number) {
      for (Dispatch::Part& part : program_.cpu.dispatches[number].parts)
        for (int& buffer : part.buffers) buffer = now_[index(buffer)];
      for (Dispatch::Part& part : program_.cpu.dispatches[number].parts) take_over(part, static_cast<int>(number));
    }
    for (auto* list : {&program_.outputs, &program_.captures})
      for (Readable& readable : *list) readable.buffer = now_[index(readable.buffer)];
    drop_unused();
  }

 private:
  void take_over(Dispatch::Part& part, int number) {
    KernelSpec kernel = program_.cpu.kernels[index(part.kernel)];
    bool changed = false;
    while (const auto pair = find_pair(part, kernel, number)) {
      merge(part, kernel, number, pair->first, pair->second);
      changed = true;
    }
    if (!changed) return;
    const auto [found, fresh] = kernel_numbers_.emplace(print(kernel), static_cast<int>(program_.cpu.kernels.size()));
    if (fresh) program_.cpu.kernels.push_back(std::move(kernel));
    part.kernel = found->second;
  }

  // The bindings of an operand and of a result that can alias it.
  std::optional<std::pair<int, int>> find_pair(const Dispatch::Part& part, const KernelSpec& kernel, int number) const {
    if (kernel.kind != KernelSpec::Kind::loop && kernel.kind != KernelSpec::Kind::matmul) return std::nullopt;
    const auto read = read_bindings(kernel), written = written_bindings(kernel);
    for (int result = 0; result < kernel.bindings; ++result) {
      const Buffer& to = program_.buffers[index(part.buffers[index(result)])];
      if (!written[index(result)] || read[index(result)] || to.where != Buffer::Where::arena ||
          lives_[index(part.buffers[index(result)])].first != number || is_part_[index(part.buffers[index(result)])])
        continue;
      for (int operand = 0; operand < kernel.bindings; ++operand) {
        const int from_number = part.buffers[index(operand)];
        const Buffer& from = program_.buffers[index(from_number)];
        if (written[index(operand)] || from.where != Buffer::Where::arena ||
            lives_[index(from_number)].last != number || is_part_[index(from_number)])
          continue;
        if (from.bytes != to.bytes || from.dtype != to.dtype || !(from.elements == to.elements)) continue;
        if (is_used_elsewhere(from_number, part, number) || !fits(kernel, operand, result)) continue;
        return std::pair(operand, result);
      }
    }
    return std::nullopt;
  }

  bool is_used_elsewhere(int buffer, const Dispatch::Part& this_part, int number) const {
    const auto& parts = program_.cpu.dispatches[index(number)].parts;
    return std::any_of(parts.begin(), parts.end(), [&](const Dispatch::Part& part) {
      return &part != &this_part && std::find(part.buffers.begin(), part.buffers.end(), buffer) != part.buffers.end();
    });
  }

  static bool fits(const KernelSpec& kernel, int operand, int result) {
    if (std::any_of(kernel.operands.begin(), kernel.operands.end(),
                    [&](const TensorAccess& access) { return access.binding == operand; }))
      return false;
    for (const Store& store : kernel.stores) {
      if (store.binding == result && !std::all_of(kernel.loads.begin(), kernel.loads.end(), [&](const Load& load) {
            return load.binding != operand || reads_what_it_writes(kernel, load, store);
          }))
        return false;
      // A value that is only copied may be read as late as its store, which can be too late.
      const Instruction& value = kernel.body[index(store.value)];
      if (value.kind == Instruction::Kind::load && kernel.loads[index(value.index)].binding == operand) return false;
    }
    return true;
  }

  void merge(Dispatch::Part& part, KernelSpec& kernel, int number, int operand, int result) {
    const int from = part.buffers[index(operand)], to = part.buffers[index(result)];
    const auto move = [&](int& binding) {
      if (binding == result) binding = operand;
      if (binding > result) --binding;
    };
    for (Load& load : kernel.loads) move(load.binding);
    for (Store& store : kernel.stores) move(store.binding);
    for (TensorAccess& access : kernel.operands) move(access.binding);
    --kernel.bindings;
    part.buffers.erase(part.buffers.begin() + result);
    for (Dispatch::Part& other : program_.cpu.dispatches[index(number)].parts)
      std::replace(other.buffers.begin(), other.buffers.end(), to, from);
    // The aliasing result is created here, so nothing aliases it yet.
    now_[index(to)] = from;
    lives_[index(from)].last = lives_[index(to)].last;
    program_.buffers[index(from)].name += " " + program_.buffers[index(to)].name;
  }

  void drop_unused() {
    std::vector<int> kernels(program_.cpu.kernels.size(), -1), buffers(program_.buffers.size(), -1);
    const auto keep = [](std::vector<int>& numbers, int& number, auto& from, auto& to) {
      int& new_number = numbers[index(number)];
      if (new_number < 0) {
        new_number = static_cast<int>(to.size());
        to.push_back(std::move(from[index(number)]));
      }
      number = new_number;
    };
    std::vector<KernelSpec> used_kernels;
    std::vector<Buffer> used_buffers;
    for (Dispatch& dispatch : program_.cpu.dispatches)
      for (Dispatch::Part& part : dispatch.parts) {
        keep(kernels, part.kernel, program_.cpu.kernels, used_kernels);
        for (int& buffer : part.buffers) keep(buffers, buffer, program_.buffers, used_buffers);
      }
    for (auto* list : {&program_.outputs, &program_.captures})
      for (Readable& readable : *list) keep(buffers, readable.buffer, program_.buffers, used_buffers);
    // The host must still know about unused storage and inputs.
    for (int i = 0; i < static_cast<int>(buffers.size()); ++i)
      if (int number = i; buffers[index(i)] < 0 && program_.buffers[index(i)].where != Buffer::Where::arena)
        keep(buffers, number, program_.buffers, used_buffers);
    for (Buffer& buffer : used_buffers)
      if (buffer.within >= 0) buffer.within = buffers[index(buffer.within)];
    program_.cpu.kernels = std::move(used_kernels);
    program_.buffers = std::move(used_buffers);
  }

  Program& program_;
  std::vector<Life> lives_;
  std::vector<int> now_;       // by buffer: the one that it aliases, or itself
  std::vector<bool> is_part_;  // by buffer: part of a larger one, or divided, so that it cannot alias another
  std::map<std::string, int> kernel_numbers_;
};

}  // namespace

bool reads_what_it_writes(const KernelSpec& kernel, const Load& load, const Store& store) {
  if (!load.masks.empty() || load.indirect >= 0 || !(load.map.offset == store.map.offset)) return false;
  const std::size_t rank = kernel.domain.size();
  const std::size_t kept = kernel.kind == KernelSpec::Kind::reduce ? rank - index(kernel.row_axes) : rank;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (kernel.domain[axis] == Dim(1)) continue;
    const Dim& stride = store.map.strides[axis];
    // Values computed from a reduction come after all reduced elements were read.
    if (axis >= kept) {
      if (!(load.map.strides[axis] == Dim(0))) return false;
      continue;
    }
    // A row's value would be written before the row's last element is read.
    if (stride == Dim(0) || !(load.map.strides[axis] == stride)) return false;
  }
  return true;
}

void take_over_buffers(Program& program) { TakeOver(program).run(); }

}  // namespace jerboa::detail
