#include "emit_with.h"

namespace jerboa {
namespace {

int add_workspace(Program& program, std::int64_t bytes) {
  Buffer buffer;
  buffer.name = "workspace";
  buffer.bytes = bytes;
  buffer.elements = bytes / 4;
  buffer.arena = static_cast<int>(program.arenas.size());
  program.arenas.push_back(bytes);
  program.buffers.push_back(buffer);
  return static_cast<int>(program.buffers.size()) - 1;
}

void emit_part(Program& program, const Target& target, const Dispatch::Part& part,
               const std::function<void(wgsl::KernelWriter&)>& write) {
  std::vector<wgsl::ShaderMemory> memories;
  for (const int number : part.buffers) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(number)];
    memories.push_back({buffer.dtype, buffer.bytes, buffer.name});
  }
  wgsl::KernelWriter writer(program.cpu.kernels[static_cast<std::size_t>(part.kernel)], target, memories);
  write(writer);
  std::vector<int> buffers = part.buffers;
  for (std::size_t i = memories.size(); i < writer.memories().size(); ++i)
    buffers.push_back(add_workspace(program, writer.memories()[i].bytes));
  for (const wgsl::KernelWriter::Step& own : writer.steps()) {
    GpuStep step;
    step.shader = static_cast<int>(program.gpu.shaders.size());
    step.sizes = own.shader.sizes;
    step.workgroups = own.workgroups;
    step.label = part.label;
    program.gpu.shaders.push_back(own.shader.source);
    for (const wgsl::Shader::Binding& binding : own.shader.bindings)
      step.bindings.push_back({buffers[static_cast<std::size_t>(binding.memory)], binding.offset, binding.bytes,
                               binding.written, binding.read_write});
    program.gpu.steps.push_back(std::move(step));
  }
}

}  // namespace

void emit_with(Program& program, const Target& target, const std::function<void(wgsl::KernelWriter&)>& write) {
  program.gpu = {};
  program.gpu.emitted = true;
  const std::vector<Dispatch> dispatches = program.cpu.dispatches;
  for (const Dispatch& dispatch : dispatches)
    for (const Dispatch::Part& part : dispatch.parts) emit_part(program, target, part, write);
}

}  // namespace jerboa
