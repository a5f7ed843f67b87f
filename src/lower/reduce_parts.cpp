#include "lower/reduce_parts.h"

#include <algorithm>

#include <jerboa/base/error.h>

#include "lower/index.h"

namespace jerboa::detail {
namespace {

// Copies the instructions that some values need, and their loads, from one kernel to another.
class Extract {
 public:
  Extract(const KernelSpec& from, KernelSpec& to)
      : from_(from), to_(to), values_(from.body.size(), -1), loads_(from.loads.size(), -1) {}

  /// Makes the instruction stand for a given value.
  void give(int instruction) {
    Instruction given = from_.body[index(instruction)];
    given.kind = Instruction::Kind::product;
    given.a = -1;
    values_[index(instruction)] = append(std::move(given));
  }

  int copy(int instruction) {
    if (instruction < 0) return -1;
    if (values_[index(instruction)] >= 0) return values_[index(instruction)];
    Instruction step = from_.body[index(instruction)];
    for (int* operand : {&step.a, &step.b, &step.c}) *operand = copy(*operand);
    if (step.kind == Instruction::Kind::load) step.index = copy_load(step.index);
    return values_[index(instruction)] = append(std::move(step));
  }

 private:
  int append(Instruction instruction) {
    to_.body.push_back(std::move(instruction));
    return static_cast<int>(to_.body.size()) - 1;
  }

  int copy_load(int number) {
    if (loads_[index(number)] >= 0) return loads_[index(number)];
    Load load = from_.loads[index(number)];
    load.indirect = copy(load.indirect);
    load.map.strides.resize(to_.domain.size());
    to_.loads.push_back(std::move(load));
    return loads_[index(number)] = static_cast<int>(to_.loads.size()) - 1;
  }

  const KernelSpec& from_;
  KernelSpec& to_;
  std::vector<int> values_, loads_;
};

}  // namespace

int reduction_of(const KernelSpec& kernel) {
  const auto found = std::find_if(kernel.body.begin(), kernel.body.end(), [](const Instruction& instruction) {
    return instruction.kind == Instruction::Kind::reduce;
  });
  if (found == kernel.body.end()) throw GraphError("internal: a reduce kernel without a reduction");
  return static_cast<int>(found - kernel.body.begin());
}

ReduceParts split_reduce(const KernelSpec& kernel) {
  ReduceParts parts;
  const int reduction = reduction_of(kernel);
  parts.elements.kind = KernelSpec::Kind::reduce;
  parts.elements.domain = kernel.domain;
  parts.elements.row_axes = kernel.row_axes;
  parts.elements.bindings = kernel.bindings;
  parts.value = Extract(kernel, parts.elements).copy(kernel.body[index(reduction)].a);

  parts.results.domain.assign(kernel.domain.begin(), kernel.domain.end() - kernel.row_axes);
  parts.results.bindings = kernel.bindings;
  Extract results(kernel, parts.results);
  results.give(reduction);
  for (Store store : kernel.stores) {
    store.value = results.copy(store.value);
    store.map.strides.resize(parts.results.domain.size());
    parts.results.stores.push_back(std::move(store));
  }
  return parts;
}

bool runs_along_kept(const KernelSpec& elements) {
  const std::size_t kept = elements.domain.size() - index(elements.row_axes);
  for (const Load& load : elements.loads)
    for (std::size_t axis = 0; axis < kept; ++axis)
      if (load.map.strides[axis] == Dim(1) && !(elements.domain[axis] == Dim(1))) return true;
  return false;
}

}  // namespace jerboa::detail
