#include "wgsl/write_steps.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <jerboa/base/error.h>

#include "base/integers.h"
#include "lower/cost.h"
#include "wgsl/fold.h"
#include "wgsl/idle_arenas.h"
#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {
namespace {

void write_kernel(KernelWriter& writer) {
  switch (writer.kernel().kind) {
    case KernelSpec::Kind::loop: return write_loop(writer);
    case KernelSpec::Kind::reduce: return write_reduce(writer);
    case KernelSpec::Kind::matmul: return write_matmul(writer);
    case KernelSpec::Kind::whole: return write_whole(writer);
  }
}

// Shaders count in u32. Rounding up to whole workgroups must not overflow it either.
constexpr std::int64_t most_elements = (std::int64_t{1} << 32) - (std::int64_t{1} << 20);

void refuse_more_than_u32_counts(const std::string& what, std::int64_t elements) {
  if (elements > most_elements)
    throw GraphError(fmt::format(
        "{} has {} elements, but shaders count them in 32 bits: split it, or run it on the CPU", what, elements));
}

// A product's weights have the shape of the whole batch, but are stored once.
Shape without_repetition(const TensorAccess& access) {
  Shape shape;
  for (std::size_t axis = 0; axis < access.shape.size(); ++axis)
    if (!(access.strides[axis] == Dim(0))) shape.push_back(access.shape[axis]);
  return shape;
}

class StepsWriter {
 public:
  StepsWriter(Program& program, const Target& target, bool in_phases)
      : program_(program), target_(target), in_phases_(in_phases) {}

  /// `workgroups`: for the parts that share those of a dispatch, how many each has.
  std::vector<WrittenStep> write(std::map<std::size_t, int> workgroups = {}) {
    workgroups_ = std::move(workgroups);
    const std::vector<FoldedPart> parts = fold_kernels(program_, target_);
    idle_.emplace(program_, parts, target_.offset_alignment);
    if (!in_phases_) row_threads_ = threads_of_products(parts);
    for (std::size_t i = 0; i < parts.size(); ++i) add_part(parts[i], i);
    return order_and_merge(program_, std::move(steps_), target_, row_threads_ > few_threads);
  }

 private:
  // The number of threads per workgroup that most of the products computed in tiles have.
  int threads_of_products(const std::vector<FoldedPart>& parts) {
    constexpr int many = 256;
    int more_with_many = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (program_.cpu.kernels[static_cast<std::size_t>(parts[i].kernel)].kind != KernelSpec::Kind::matmul) continue;
      for (const KernelWriter::Step& step : written(parts[i], i).steps()) {
        const ShaderSource& source = step.shader.source;
        if (source.name != "matmul" && source.name != "matmul_matrices") continue;
        more_with_many += source.threads == many ? 1 : source.threads == few_threads ? -1 : 0;
      }
    }
    return more_with_many > 0 ? many : few_threads;
  }

  // Kernels that bind memory of the same sizes share their shaders.
  const KernelWriter& written(const FoldedPart& part, std::size_t number_of_part) {
    std::vector<ShaderMemory> memories = memories_of(program_, part.buffers);
    for (std::size_t i = 0; has_phases && in_phases_ && i < memories.size(); ++i)
      memories[i].access = access_to(part.buffers[i]);
    std::string key = fmt::format("{}{}", part.kernel, part.key);
    for (const ShaderMemory& memory : memories)
      key += fmt::format(" {}{}{}", memory.bytes, memory.access == MemoryAccess::passed ? "p" : "",
                         memory.has_fixed_size ? "" : "~");
    const std::optional<int> shared = workgroups_of(number_of_part);
    if (shared) key += fmt::format(" of {}", *shared);
    const bool overlap = buffers_overlap(part);
    if (overlap) key += " overlap";
    const auto found = written_.find(key);
    if (found != written_.end()) return found->second;
    const KernelSpec& kernel = program_.cpu.kernels[static_cast<std::size_t>(part.kernel)];
    const auto refuse = [&](const Shape& shape) {
      refuse_more_than_u32_counts("the domain of " + part.label, element_count(shape).upper_bound());
    };
    refuse(kernel.domain);
    for (const auto* list : {&kernel.operands, &kernel.results})
      for (const TensorAccess& access : *list)
        refuse(kernel.kind == KernelSpec::Kind::matmul ? without_repetition(access) : access.shape);
    const Target& target = shared ? target_with(*shared) : target_;
    KernelWriter writer(kernel, target, std::move(memories), overlap, part.folded);
    if (has_phases && in_phases_) writer.pass_workspaces();
    writer.set_row_threads(row_threads_);
    write_kernel(writer);
    for (const ShaderMemory& memory : writer.memories())
      refuse_more_than_u32_counts(memory.name.empty() ? "memory between the shaders of " + part.label : memory.name,
                                  memory.bytes * 8 / bits(memory.dtype));
    return written_.emplace(key, std::move(writer)).first->second;
  }

  std::optional<int> workgroups_of(std::size_t part) const {
    if constexpr (!has_phases) return std::nullopt;
    const auto found = workgroups_.find(part);
    return found == workgroups_.end() ? std::nullopt : std::optional(found->second);
  }

  // Writers keep a reference to their target.
  const Target& target_with(int workgroups) {
    const auto [found, is_new] = targets_.emplace(workgroups, target_);
    found->second.persistent_workgroups = workgroups;
    return found->second;
  }

  // Activations are passed from phase to phase.
  MemoryAccess access_to(int buffer) const {
    const bool is_activation = program_.buffers[static_cast<std::size_t>(buffer)].where == Buffer::Where::arena;
    return is_activation ? MemoryAccess::passed : MemoryAccess::placed;
  }

  // Whether two of a kernel's bindings are the same tensor, or a tensor and a part of it.
  bool buffers_overlap(const FoldedPart& part) const {
    const auto is_bound = [&](std::size_t memory) { return part.folded.needs_buffer(static_cast<int>(memory)); };
    for (std::size_t i = 0; i < part.buffers.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        if (!is_bound(i) || !is_bound(j)) continue;
        const Buffer& a = program_.buffers[static_cast<std::size_t>(part.buffers[i])];
        const Buffer& b = program_.buffers[static_cast<std::size_t>(part.buffers[j])];
        if (root_of(program_, part.buffers[i]) == root_of(program_, part.buffers[j]) && a.inside < b.inside + b.bytes &&
            b.inside < a.inside + a.bytes)
          return true;
      }
    return false;
  }

  void add_part(const FoldedPart& part, std::size_t number_of_part) {
    const KernelWriter& writer = written(part, number_of_part);
    std::map<int, int> large;  // workspaces by slot
    const auto buffer_of = [&](int memory) {
      const auto number = static_cast<std::size_t>(memory);
      if (number < part.buffers.size()) return part.buffers[number];
      const auto slot = static_cast<int>(number - part.buffers.size());
      const std::int64_t bytes = writer.memories()[number].bytes;
      if (bytes > small_workspace && target_.plan && !large.contains(slot))
        large.emplace(slot, idle_workspace(part, number_of_part, bytes, large));
      const auto found = large.find(slot);
      return found != large.end() && found->second >= 0 ? found->second : workspace(slot, bytes);
    };
    ++kernels_;
    Dim operations = detail::operations_of(writer.kernel());
    if (part.folded.companion) operations = operations + detail::operations_of(*part.folded.companion);
    for (const KernelWriter::Step& written : writer.steps()) {
      GpuStep step;
      step.shader = 0;  // numbered when the steps are final
      step.sizes = written.shader.sizes;
      step.workgroups = written.workgroups;
      step.label = part.label;
      const OperationShare share = written.operations;
      if (share.part > 0) step.operations = floor_divide(operations * Dim(share.part), share.of);
      for (const auto& binding : written.shader.bindings) {
        if (binding.packed.empty()) {
          step.bindings.push_back(
              {buffer_of(binding.memory), binding.offset, binding.bytes, binding.written, binding.read_write});
          continue;
        }
        step.bindings.push_back({pack(binding, writer, buffer_of), 0, binding.bytes, false});
      }
      program_.gpu.uses_f16 |= written.uses_f16;
      program_.gpu.uses_subgroups |= written.uses_subgroups;
      if (written.uses_subgroup_matrices && program_.gpu.subgroup_matrices.empty())
        program_.gpu.subgroup_matrices.push_back({16, 16, 16, DType::f16, DType::f32});
      int beside = -1;
      if (written.beside_previous) {
        int& number = steps_.back().beside;
        if (number < 0) number = static_cast<int>(steps_.size());
        beside = number;
      }
      const auto multiplied = static_cast<double>(step.operations.upper_bound());
      steps_.push_back({std::move(step), written.shader, beside});
      if (has_phases && in_phases_) steps_.back().operations_of = {{number_of_part, multiplied}};
    }
  }

  // Copies several small buffers into one.
  template <class BufferOf>
  int pack(const Shader::Binding& binding, const KernelWriter& writer, const BufferOf& buffer_of) {
    const int target = workspace(packing_slot, binding.bytes);
    std::int64_t offset = 0;
    for (const int memory : binding.packed) {
      const std::int64_t bytes = detail::whole_words(writer.memories()[static_cast<std::size_t>(memory)].bytes);
      GpuStep copy;
      copy.bindings = {{buffer_of(memory), 0, bytes, false}, {target, offset, bytes, true}};
      copy.label = "pack";
      offset += bytes;
      if (bytes > 0) steps_.push_back({std::move(copy), {}, -1});
    }
    return target;
  }

  // Large scratch memory for one part of the program, in arenas that are idle while it runs; -1: there is none.
  // `others`: the part's other workspaces.
  int idle_workspace(const FoldedPart& part, std::size_t number, std::int64_t bytes, const std::map<int, int>& others) {
    std::set<int> taken;
    for (const auto& [slot, buffer] : others)
      if (buffer >= 0) taken.insert(program_.buffers[static_cast<std::size_t>(buffer)].arena);
    const auto place = idle_->find(number, detail::whole_words(bytes), taken);
    if (!place) return -1;
    Buffer buffer;
    buffer.name = fmt::format("workspace of {}", part.label);
    buffer.dtype = DType::u32;
    buffer.arena = place->arena;
    buffer.offset = place->offset;
    buffer.last = -1;  // not part of the plan, in which an arena holds one tensor at a time
    buffer.bytes = detail::whole_words(bytes);
    buffer.elements = buffer.bytes / 4;
    program_.buffers.push_back(std::move(buffer));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  // Scratch memory that kernels reuse. Small requests rotate among several buffers, so that kernels do not wait for
  // each other.
  int workspace(int slot, std::int64_t bytes) {
    constexpr int turns = 8;
    const int turn = bytes <= small_workspace ? kernels_ % turns : turns;
    const auto [found, fresh] = workspaces_.emplace(std::pair(slot, turn), static_cast<int>(program_.buffers.size()));
    if (fresh) {
      Buffer buffer;
      buffer.name = slot == packing_slot ? "packed operands" : fmt::format("workspace {}.{}", slot, turn);
      buffer.dtype = DType::u32;
      buffer.arena = static_cast<int>(program_.arenas.size());
      buffer.last = static_cast<int>(program_.cpu.dispatches.size());
      program_.arenas.push_back(0);
      program_.buffers.push_back(std::move(buffer));
    }
    Buffer& buffer = program_.buffers[static_cast<std::size_t>(found->second)];
    buffer.bytes = std::max(buffer.bytes, detail::whole_words(bytes));
    buffer.elements = buffer.bytes / 4;
    program_.arenas[static_cast<std::size_t>(buffer.arena)] = buffer.bytes;
    return found->second;
  }

  static constexpr int packing_slot = -1, few_threads = 128;
  static constexpr std::int64_t small_workspace = std::int64_t{8} << 20;
  Program& program_;
  const Target& target_;
  bool in_phases_;
  std::map<std::size_t, int> workgroups_;
  std::map<int, Target> targets_;
  std::map<std::string, KernelWriter> written_;
  std::vector<WrittenStep> steps_;
  std::map<std::pair<int, int>, int> workspaces_;
  int row_threads_ = few_threads;
  std::optional<IdleArenas> idle_;
  int kernels_ = 0;
};

}  // namespace

std::vector<WrittenStep> write_steps(Program& program, const Target& target) {
  return StepsWriter(program, target, false).write();
}

std::vector<WrittenStep> write_phases(Program& program, const Target& target) {
  Program trial = program;
  std::map<std::size_t, int> workgroups;
  for (const WrittenStep& step : StepsWriter(trial, target, true).write()) {
    if (step.operations_of.size() < 2) continue;
    double all = 0;
    for (const auto& [part, operations] : step.operations_of) all += operations;
    for (const auto& [part, operations] : step.operations_of)
      if (operations > 0)
        workgroups[part] = std::max(1, static_cast<int>(target.persistent_workgroups * operations / all));
  }
  return StepsWriter(program, target, true).write(std::move(workgroups));
}

}  // namespace jerboa::wgsl
