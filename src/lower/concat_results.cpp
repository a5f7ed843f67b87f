#include "lower/concat_results.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lower/axes.h"
#include "lower/emit.h"
#include "lower/index.h"
#include "lower/lives.h"

namespace jerboa::detail {
namespace {

// The only load that provides the value inside the bounds of its mask, if the body selects among loads by the position
// along the axis.
int chosen_at(const KernelSpec& kernel, const Mask& mask) {
  int number = kernel.stores.front().value;
  while (kernel.body[index(number)].kind == Instruction::Kind::compute) {
    const Instruction& choice = kernel.body[index(number)];
    if (choice.op != Op::where) return -1;
    const Instruction& condition = kernel.body[index(choice.a)];
    if (condition.kind != Instruction::Kind::compute || condition.op != Op::less) return -1;
    const Instruction &position = kernel.body[index(condition.a)], &bound = kernel.body[index(condition.b)];
    if (position.kind != Instruction::Kind::position || position.index != mask.axis || !(position.dim == Dim(0)) ||
        !(position.dim_scale == Dim(1)) || bound.kind != Instruction::Kind::constant)
      return -1;
    const Dim end = bound.dim + Dim(static_cast<std::int64_t>(bound.number));
    if (!end.is_constant()) return -1;
    if (mask.to.value() <= end.value())
      number = choice.b;
    else if (mask.from.value() >= end.value())
      number = choice.c;
    else
      return -1;
  }
  const Instruction& load = kernel.body[index(number)];
  return load.kind == Instruction::Kind::load ? load.index : -1;
}

// Whether a kernel only copies ranges of one axis, each from a separate tensor.
bool is_concatenation(const KernelSpec& kernel) {
  if (kernel.kind != KernelSpec::Kind::loop || kernel.row_axes > 0 || kernel.stores.size() != 1 ||
      kernel.loads.size() < 2)
    return false;
  const Store& store = kernel.stores.front();
  std::map<std::int64_t, std::int64_t> ranges;
  for (std::size_t i = 0; i < kernel.loads.size(); ++i) {
    const Load& load = kernel.loads[i];
    if (load.masks.size() != 1 || !load.masks.front().from.is_constant() || !load.masks.front().to.is_constant() ||
        load.indirect >= 0 || load.dtype != store.dtype || load.binding == store.binding ||
        load.masks.front().axis != kernel.loads.front().masks.front().axis ||
        chosen_at(kernel, load.masks.front()) != static_cast<int>(i))
      return false;
    ranges.emplace(load.masks.front().from.value(), load.masks.front().to.value());
  }
  std::int64_t end = 0;
  for (const auto& [from, to] : ranges) {
    if (from != end) return false;
    end = to;
  }
  return kernel.domain[index(kernel.loads.front().masks.front().axis)] == Dim(end);
}

// The layout that a result gets if it is written directly to where the kernel stores what it loads from it: each step
// along one of the result's axes must be some steps along one axis of the kernel's domain.
std::optional<TensorAccess> moved(TensorAccess result, const KernelSpec& concat, const Load& load) {
  const Store& store = concat.stores.front();
  const Mask& mask = load.masks.front();
  const std::size_t axes = concat.domain.size();
  Shape sizes;
  std::vector<std::int64_t> lengths, strides, targets;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const Dim size = static_cast<int>(axis) == mask.axis ? mask.to - mask.from : concat.domain[axis];
    for (const Dim& dim : {size, load.map.strides[axis], store.map.strides[axis]})
      if (!dim.is_constant()) return std::nullopt;
    sizes.push_back(size);
    lengths.push_back(size.value());
    strides.push_back(load.map.strides[axis].value());
    targets.push_back(store.map.strides[axis].value());
  }
  // Both must begin at the first element, and the load must read them in order: an element's number then determines its
  // index along each axis.
  if (!is_row_major(sizes, load.map.strides) || !(result.offset == Dim(0)) ||
      !(load.map.offset + mask.from * load.map.strides[index(mask.axis)] == Dim(0)))
    return std::nullopt;
  std::vector<std::int64_t> reach(axes, 0);
  for (std::size_t i = 0; i < result.strides.size(); ++i) {
    if (!result.strides[i].is_constant() || !result.shape[i].is_constant()) return std::nullopt;
    const std::int64_t stride = result.strides[i].value(), steps = result.shape[i].value() - 1;
    std::size_t axis = 0;
    while (axis < axes && (strides[axis] == 0 || lengths[axis] == 1 || strides[axis] > stride)) ++axis;
    if (steps <= 0) {
      result.strides[i] = Dim(0);
      continue;
    }
    if (axis == axes || stride % strides[axis] != 0) return std::nullopt;
    reach[axis] += steps * (stride / strides[axis]);
    result.strides[i] = Dim(stride / strides[axis] * targets[axis]);
  }
  for (std::size_t axis = 0; axis < axes; ++axis)
    if (reach[axis] >= lengths[axis]) return std::nullopt;
  result.offset = store.map.offset + mask.from * store.map.strides[index(mask.axis)];
  return result;
}

class ConcatResults {
 public:
  explicit ConcatResults(Program& program) : program_(program) {
    for (std::size_t i = 0; i < program.cpu.kernels.size(); ++i)
      kernel_numbers_.emplace(print(program.cpu.kernels[i]), static_cast<int>(i));
    find_uses();
  }

  void run() {
    for (Dispatch& dispatch : program_.cpu.dispatches)
      std::erase_if(dispatch.parts, [&](const Dispatch::Part& part) { return takes_over(part); });
    std::erase_if(program_.cpu.dispatches, [](const Dispatch& dispatch) { return dispatch.parts.empty(); });
  }

 private:
  const KernelSpec& kernel_of(const Dispatch::Part& part) const { return program_.cpu.kernels[index(part.kernel)]; }

  void find_uses() {
    uses_.resize(program_.buffers.size());
    for (Dispatch& dispatch : program_.cpu.dispatches)
      for (Dispatch::Part& part : dispatch.parts)
        for (const int buffer : part.buffers) uses_[index(buffer)].push_back(&part);
    for (const auto* list : {&program_.outputs, &program_.captures})
      for (const Readable& readable : *list) uses_[index(readable.buffer)].push_back(nullptr);
  }

  // Whether the copy was removed because another part now writes the elements directly.
  bool takes_over(const Dispatch::Part& part) {
    const KernelSpec& concat = kernel_of(part);
    if (!is_concatenation(concat)) return false;
    Dispatch::Part* source = nullptr;
    for (const Load& load : concat.loads) {
      const int from = part.buffers[index(load.binding)];
      const Buffer& buffer = program_.buffers[index(from)];
      const std::vector<Dispatch::Part*>& uses = uses_[index(from)];
      if (buffer.where != Buffer::Where::arena || buffer.within >= 0 || uses.size() != 2 || uses[0] == nullptr ||
          uses[1] != &part || (source != nullptr && uses[0] != source))
        return false;
      source = uses[0];
    }
    const int to = part.buffers[index(concat.stores.front().binding)];
    if (program_.buffers[index(to)].where != Buffer::Where::arena || uses_[index(to)].front() != &part) return false;
    return redirect(*source, part, concat, to);
  }

  bool redirect(Dispatch::Part& source, const Dispatch::Part& part, const KernelSpec& concat, int to) {
    KernelSpec kernel = kernel_of(source);
    if (kernel.kind != KernelSpec::Kind::whole || kernel.op != Op::attention_grad) return false;
    std::vector<bool> gone(source.buffers.size(), false);
    for (const Load& load : concat.loads) {
      const auto at = std::find(source.buffers.begin(), source.buffers.end(), part.buffers[index(load.binding)]);
      const int binding = static_cast<int>(at - source.buffers.begin());
      const auto writes = [&](const TensorAccess& result) { return result.binding == binding; };
      if (gone[index(binding)] || read_bindings(kernel)[index(binding)] ||
          std::count_if(kernel.results.begin(), kernel.results.end(), writes) != 1)
        return false;
      TensorAccess& result = *std::find_if(kernel.results.begin(), kernel.results.end(), writes);
      std::optional<TensorAccess> there = moved(result, concat, load);
      if (!there) return false;
      result = std::move(*there);
      gone[index(binding)] = true;
    }
    // The remaining bindings keep their order, and the new one is last.
    std::vector<int> numbers, buffers;
    for (std::size_t i = 0; i < gone.size(); ++i) {
      numbers.push_back(static_cast<int>(buffers.size()));
      if (!gone[i]) buffers.push_back(source.buffers[i]);
    }
    const int last = static_cast<int>(buffers.size());
    buffers.push_back(to);
    for (auto* list : {&kernel.operands, &kernel.results})
      for (TensorAccess& access : *list)
        if (access.binding >= 0) access.binding = gone[index(access.binding)] ? last : numbers[index(access.binding)];
    kernel.bindings = last + 1;
    const auto [found, fresh] = kernel_numbers_.emplace(print(kernel), static_cast<int>(program_.cpu.kernels.size()));
    if (fresh) program_.cpu.kernels.push_back(std::move(kernel));
    source.kernel = found->second;
    source.buffers = std::move(buffers);
    return true;
  }

  Program& program_;
  std::map<std::string, int> kernel_numbers_;
  std::vector<std::vector<Dispatch::Part*>> uses_;  // by buffer, in order; null: the user reads it
};

}  // namespace

void write_into_concats(Program& program) { ConcatResults(program).run(); }

}  // namespace jerboa::detail
