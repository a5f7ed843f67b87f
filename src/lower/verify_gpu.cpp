#include "lower/verify_gpu.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/integers.h"
#include "lower/target.h"

namespace jerboa::detail {
namespace {

constexpr std::int64_t most_u32 = 0xffffffff;
constexpr std::int64_t most_workgroups = std::int64_t{65535} * 65535;

class GpuVerifier {
 public:
  GpuVerifier(const ProgramMemory& memory, const GpuCode& code) : memory_(memory), code_(code) {}

  void run() {
    for (const ShaderSource& shader : code_.shaders)
      if (shader.source.empty() || shader.threads < 1 || shader.workgroup_bytes < 0)
        throw GraphError(fmt::format("invalid program: the shader {} is empty", shader.name));
    for (; step_ < code_.steps.size(); ++step_) check(code_.steps[step_]);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw GraphError(fmt::format("invalid program: step {} ({}): {}", step_, code_.steps[step_].label,
                                 fmt::format(text, std::forward<Args>(args)...)));
  }

  const Buffer& buffer(const GpuStep::Binding& binding) const {
    return memory_.buffers[static_cast<std::size_t>(binding.buffer)];
  }
  bool is_in_arena(const GpuStep::Binding& binding) const { return buffer(binding).where == Buffer::Where::arena; }
  std::int64_t start_of(const GpuStep::Binding& binding) const { return buffer(binding).offset + binding.offset; }

  void check(const GpuStep& step) const {
    const bool copies = step.shader == -1;
    if (step.shader < -1 || step.shader >= static_cast<int>(code_.shaders.size()))
      fail("there is no shader {}", step.shader);
    if (step.workgroups.lower_bound() < 0 || step.workgroups.upper_bound() > most_workgroups)
      fail("{} workgroups are out of range", step.workgroups.str());
    for (const Dim& size : step.sizes)
      if (size.lower_bound() < -most_u32 || size.upper_bound() > most_u32) fail("{} does not fit u32", size.str());
    for (const GpuStep::Binding& binding : step.bindings) check(binding, copies);
    if (copies &&
        (step.bindings.size() != 2 || step.bindings[0].bytes != step.bindings[1].bytes || !step.bindings[1].written))
      fail("a copy needs a source and a target of the same size");
    for (std::size_t i = 0; i < step.bindings.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) check(step.bindings[j], step.bindings[i]);
  }

  void check(const GpuStep::Binding& binding, bool copied) const {
    if (binding.buffer < 0 || binding.buffer >= static_cast<int>(memory_.buffers.size()))
      fail("there is no buffer {}", binding.buffer);
    const Buffer& tensor_buffer = buffer(binding);
    if (binding.offset < 0 || binding.bytes < 0 || binding.offset > most_bytes || binding.bytes > most_bytes ||
        start_of(binding) % (copied ? 4 : 256) != 0)
      fail("{} is bound at offset {}, which is not aligned", tensor_buffer.name, binding.offset);
    const std::int64_t there = is_in_arena(binding) ? memory_.arenas[static_cast<std::size_t>(tensor_buffer.arena)]
                               : tensor_buffer.within >= 0
                                   ? memory_.buffers[static_cast<std::size_t>(tensor_buffer.within)].bytes
                                   : tensor_buffer.bytes;
    if (start_of(binding) + round_up(binding.bytes, 4) > std::max<std::int64_t>(16, round_up(there, 16)))
      fail("{} is bound beyond its end", tensor_buffer.name);
    if (binding.written && tensor_buffer.where != Buffer::Where::arena &&
        tensor_buffer.where != Buffer::Where::storage && tensor_buffer.where != Buffer::Where::pool)
      fail("{} is written, but is read-only", tensor_buffer.name);
  }

  // Two bindings of one step to the same memory must both be reads, or writes of disjoint parts.
  void check(const GpuStep::Binding& a, const GpuStep::Binding& b) const {
    const bool same = is_in_arena(a) && is_in_arena(b) ? buffer(a).arena == buffer(b).arena
                                                       : root_of(memory_, a.buffer) == root_of(memory_, b.buffer);
    if (!same || (!a.is_read_write() && !b.is_read_write())) return;
    const bool overlap = start_of(a) < start_of(b) + b.bytes && start_of(b) < start_of(a) + a.bytes;
    if (a.is_read_write() != b.is_read_write() || overlap)
      fail("{} and {} are the same memory, and at least one is bound for writing", buffer(a).name, buffer(b).name);
  }

  const ProgramMemory& memory_;
  const GpuCode& code_;
  std::size_t step_ = 0;
};

}  // namespace

void verify_gpu(const ProgramMemory& memory, const GpuCode& code) { GpuVerifier(memory, code).run(); }

}  // namespace jerboa::detail
