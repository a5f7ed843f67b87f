#include "lower/verify_access.h"

#include <algorithm>
#include <fmt/format.h>

#include "lower/invalid_program.h"
#include "lower/verify_kernel.h"

namespace jerboa::detail {
namespace {

std::int64_t bytes_at(const Buffer& buffer, const SymbolValues& symbols) {
  return buffer.elements.evaluate(symbols) * bits(buffer.dtype) / 8;
}

void verify_readables(const ProgramMemory& memory, const SymbolValues& symbols) {
  for (const auto* list : {&memory.outputs, &memory.captures})
    for (const Readable& readable : *list) {
      if (bits(readable.dtype) < 16)
        fail_program("{} is {}, which cannot be read after a run", readable.name, name(readable.dtype));
      const Buffer& buffer = memory.buffers[static_cast<std::size_t>(readable.buffer)];
      const std::int64_t needed =
          bytes_reached(readable.name, readable.dtype, readable.offset, readable.strides, readable.shape, symbols);
      if (needed > bytes_at(buffer, symbols))
        fail_program("{} is read from {} bytes of {}, which has {}", readable.name, needed, buffer.name,
                     bytes_at(buffer, symbols));
    }
}

template <class Visit>
void for_each_dim(const std::vector<Dim>& list, Visit visit) {
  std::for_each(list.begin(), list.end(), visit);
}

template <class Visit>
void for_each_dim(const std::vector<Instruction>& body, Visit visit) {
  for (const Instruction& instruction : body) {
    visit(instruction.dim);
    visit(instruction.dim_scale);
  }
}

template <class Visit>
void for_each_dim(const KernelSpec& kernel, Visit visit) {
  for_each_dim(kernel.domain, visit);
  for_each_dim(kernel.body, visit);
  for (const Load& load : kernel.loads) {
    visit(load.map.offset);
    for_each_dim(load.map.strides, visit);
    for (const Mask& mask : load.masks) {
      visit(mask.from);
      visit(mask.to);
    }
    visit(load.indirect_stride);
    visit(load.indirect_limit);
  }
  for (const Store& store : kernel.stores) {
    visit(store.map.offset);
    for_each_dim(store.map.strides, visit);
  }
  for (const auto* list : {&kernel.operands, &kernel.results})
    for (const TensorAccess& access : *list) {
      for_each_dim(access.shape, visit);
      visit(access.offset);
      for_each_dim(access.strides, visit);
      for_each_dim(access.prologue, visit);
    }
}

SymbolValues upper_bounds(const Program& program) {
  SymbolValues bounds;
  const auto note = [&](const Dim& dim) { dim.collect_symbols(bounds); };
  for (const Buffer& buffer : program.buffers) note(buffer.elements);
  for (const auto* list : {&program.outputs, &program.captures})
    for (const Readable& readable : *list) {
      for_each_dim(readable.shape, note);
      note(readable.offset);
      for_each_dim(readable.strides, note);
    }
  for (const KernelSpec& kernel : program.cpu.kernels) for_each_dim(kernel, note);
  return bounds;
}

}  // namespace

void verify_access(const Program& program, const SymbolValues& symbols) {
  verify_readables(program, symbols);
  std::vector<std::vector<std::int64_t>> needed;  // by kernel and binding: bytes
  needed.reserve(program.cpu.kernels.size());
  for (std::size_t i = 0; i < program.cpu.kernels.size(); ++i)
    needed.push_back(verify_kernel(program.cpu.kernels[i], fmt::format("kernel {}", i), symbols));
  for (std::size_t i = 0; i < program.cpu.dispatches.size(); ++i)
    for (const Dispatch::Part& part : program.cpu.dispatches[i].parts) {
      const auto& reached = needed[static_cast<std::size_t>(part.kernel)];
      for (std::size_t b = 0; b < reached.size(); ++b) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(part.buffers[b])];
        if (reached[b] > bytes_at(buffer, symbols))
          fail_program("dispatch {} ({}) reaches {} bytes into {}, which has {}", i, part.label, reached[b],
                       buffer.name, bytes_at(buffer, symbols));
      }
    }
}

void verify_access_at_bounds(const Program& program) {
  SymbolValues symbols = upper_bounds(program);
  verify_access(program, symbols);
  if (symbols.empty()) return;
  for (auto& [name, value] : symbols) value = 1;
  verify_access(program, symbols);
}

}  // namespace jerboa::detail
