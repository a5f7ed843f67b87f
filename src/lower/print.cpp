#include <algorithm>
#include <fmt/format.h>

#include <jerboa/lower/program.h>

#include "lower/emit.h"
#include "lower/lives.h"
#include "lower/target.h"

namespace jerboa {
namespace {

std::string join(const std::vector<Dim>& dims) { return to_string(Shape(dims)); }

std::string text_of(const IndexMap& map) { return fmt::format("{}+{}", map.offset.str(), join(map.strides)); }

std::string text_of(const TensorAccess& access) {
  if (access.binding < 0) return "-";
  return fmt::format("b{} {}{} at {}+{}", access.binding, name(access.dtype), to_string(access.shape),
                     access.offset.str(), join(access.strides));
}

std::string text_of(const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::load: return fmt::format("load {}", instruction.index);
    case Instruction::Kind::constant:
      return instruction.dim == Dim(0) ? fmt::format("{}", instruction.number) : instruction.dim.str();
    case Instruction::Kind::position:
      return fmt::format("index {} * {} + {}", instruction.index, instruction.dim_scale.str(), instruction.dim.str());
    case Instruction::Kind::product: return "product";
    case Instruction::Kind::reduce: return fmt::format("reduce {} v{}", name(instruction.op), instruction.a);
    case Instruction::Kind::compute: break;
  }
  std::string text = std::string(name(instruction.op));
  for (const int operand : {instruction.a, instruction.b, instruction.c})
    if (operand >= 0) text += fmt::format(" v{}", operand);
  if (instruction.number != 0 || instruction.number2 != 0 || instruction.index != 0)
    text += fmt::format(" ({}, {}, {})", instruction.number, instruction.number2, instruction.index);
  return text;
}

}  // namespace

std::string detail::print(const KernelSpec& kernel) {
  constexpr auto kinds = std::to_array<std::string_view>({"loop", "reduce", "matmul", "whole"});
  std::string text = fmt::format("{} {}", kinds[static_cast<std::size_t>(kernel.kind)], to_string(kernel.domain));
  if (kernel.row_axes > 0) text += fmt::format(" rows over the last {}", kernel.row_axes);
  if (kernel.kind == KernelSpec::Kind::whole)
    text += fmt::format(" {} {}", name(kernel.op), attrs_to_json(kernel.attrs, false));
  text += '\n';
  for (const TensorAccess& operand : kernel.operands) {
    text += fmt::format("  operand {}\n", text_of(operand));
    for (std::size_t i = 0; i < operand.prologue.size(); ++i)
      text += fmt::format("    v{}: {} = {}\n", i, name(operand.prologue[i].dtype), text_of(operand.prologue[i]));
  }
  for (const TensorAccess& result : kernel.results) text += fmt::format("  result {}\n", text_of(result));
  for (std::size_t i = 0; i < kernel.loads.size(); ++i) {
    const Load& load = kernel.loads[i];
    text += fmt::format("  load {}: b{} {} at {}", i, load.binding, name(load.dtype), text_of(load.map));
    for (const Mask& mask : load.masks)
      text += fmt::format(" if {} <= index {} < {}", mask.from.str(), mask.axis, mask.to.str());
    if (!load.masks.empty()) text += fmt::format(" else {}", load.fill);
    if (load.indirect >= 0)
      text += fmt::format(" + v{} * {} of {}", load.indirect, load.indirect_stride.str(), load.indirect_limit.str());
    text += '\n';
  }
  for (std::size_t i = 0; i < kernel.body.size(); ++i)
    text += fmt::format("  v{}: {} = {}\n", i, name(kernel.body[i].dtype), text_of(kernel.body[i]));
  for (const Store& store : kernel.stores)
    text +=
        fmt::format("  store v{} to b{} {} at {}\n", store.value, store.binding, name(store.dtype), text_of(store.map));
  return text;
}

std::string detail::print_plan(const Program& program, const Target& target) {
  constexpr auto places = std::to_array<std::string_view>({"storage", "inputs", "constants", "activations", "pools"});
  std::string text = fmt::format("plan for {}: {} dispatches\n", target.name, program.cpu.dispatches.size());
  for (std::size_t place = 0; place < places.size(); ++place) {
    std::int64_t count = 0, bytes = 0;
    for (const Buffer& buffer : program.buffers)
      if (static_cast<std::size_t>(buffer.where) == place) {
        ++count;
        bytes += buffer.bytes;
      }
    text += fmt::format("  {}: {} bytes in {} buffers\n", places[place], bytes, count);
  }
  std::int64_t total = 0;
  for (const std::int64_t bytes : program.arenas) total += bytes;
  text += fmt::format("  arenas: {} bytes in {}, {} in use at peak\n", total, program.arenas.size(),
                      max_live_bytes(program));
  int most = 0;
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) {
      int count = 0;
      for (const int buffer : part.buffers)
        count += binding_count(program.buffers[static_cast<std::size_t>(buffer)].bytes, target);
      if (program.cpu.kernels[static_cast<std::size_t>(part.kernel)].kind != KernelSpec::Kind::whole)
        most = std::max(most, count);
    }
  return text + fmt::format("  bindings: up to {} per kernel\n", most);
}

std::string print(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.cpu.kernels.size(); ++i)
    text += fmt::format("kernel {}: {}", i, detail::print(program.cpu.kernels[i]));
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    constexpr auto places = std::to_array<std::string_view>({"storage", "input", "constant", "arena", "pool"});
    text += fmt::format("buffer {}: {} {} {}[{}] {} bytes", i, places[static_cast<std::size_t>(buffer.where)],
                        buffer.name, name(buffer.dtype), buffer.elements.str(), buffer.bytes);
    if (buffer.where == Buffer::Where::arena)
      text +=
          fmt::format(" at arena {} + {}, dispatches {} to {}", buffer.arena, buffer.offset, buffer.first, buffer.last);
    if (buffer.within >= 0) text += fmt::format(", within buffer {} + {}", buffer.within, buffer.inside);
    text += '\n';
  }
  for (std::size_t i = 0; i < program.cpu.dispatches.size(); ++i)
    for (const Dispatch::Part& part : program.cpu.dispatches[i].parts)
      text +=
          fmt::format("dispatch {}: kernel {} [{}] {}\n", i, part.kernel, fmt::join(part.buffers, ", "), part.label);
  return text;
}

}  // namespace jerboa
