#include "lower/verify_cpu.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "lower/in_place.h"
#include "lower/invalid_program.h"
#include "lower/lives.h"
#include "lower/target.h"

namespace jerboa::detail {
namespace {

class CpuVerifier {
 public:
  CpuVerifier(const Program& program, const Target& target) : program_(program), target_(target) {
    parts_.resize(program.buffers.size());
    for (std::size_t i = 0; i < program.buffers.size(); ++i)
      if (program.buffers[i].within >= 0)
        parts_[static_cast<std::size_t>(program.buffers[i].within)].push_back(static_cast<int>(i));
  }

  void run() const {
    check_lives();
    for (std::size_t i = 0; i < program_.cpu.dispatches.size(); ++i) check_bindings(i);
    check_order();
    check_merged();
    check_in_place();
  }

 private:
  const Buffer& buffer(int number) const { return program_.buffers[static_cast<std::size_t>(number)]; }
  const KernelSpec& kernel(const Dispatch::Part& part) const {
    return program_.cpu.kernels[static_cast<std::size_t>(part.kernel)];
  }

  // Checks that no activation is used outside its planned live range.
  void check_lives() const {
    const auto lives = lives_of(program_);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.where != Buffer::Where::arena || lives[i].last < 0) continue;
      if (buffer.first > lives[i].first || buffer.last < lives[i].last)
        fail_program("{} is planned for dispatches {} to {} and in use from {} to {}", buffer.name, buffer.first,
                     buffer.last, lives[i].first, lives[i].last);
    }
  }

  void check_bindings(std::size_t number) const {
    for (const Dispatch::Part& part : program_.cpu.dispatches[number].parts) {
      std::set<int> bound;
      int count = 0;
      for (const int id : part.buffers) {
        if (any_overlaps(bound, id)) fail_program("dispatch {} binds {} twice", number, buffer(id).name);
        bound.insert(id);
        count += binding_count(buffer(id).bytes, target_);
      }
      // Hosts may split ops on whole tensors into several dispatches.
      if (kernel(part).kind == KernelSpec::Kind::whole || count <= target_.max_bindings) continue;
      std::vector<std::string_view> names;
      for (const int id : part.buffers) names.push_back(buffer(id).name);
      fail_program("dispatch {} needs {} bindings where {} are allowed: {}", number, count, target_.max_bindings,
                   fmt::join(names, ", "));
    }
  }

  // Whether the list contains this buffer, the one that contains it, or a part of it.
  bool any_overlaps(const std::set<int>& list, int id) const {
    const auto& parts = parts_[static_cast<std::size_t>(id)];
    return list.contains(id) || (buffer(id).within >= 0 && list.contains(buffer(id).within)) ||
           std::any_of(parts.begin(), parts.end(), [&](int part) { return list.contains(part); });
  }

  // A buffer is written once it, the buffer that contains it, or all of its parts have been.
  bool is_written(const std::vector<bool>& written, int id) const {
    if (written[static_cast<std::size_t>(id)]) return true;
    if (buffer(id).within >= 0) return written[static_cast<std::size_t>(buffer(id).within)];
    const auto& parts = parts_[static_cast<std::size_t>(id)];
    return !parts.empty() &&
           std::all_of(parts.begin(), parts.end(), [&](int part) { return written[static_cast<std::size_t>(part)]; });
  }

  // Checks that nothing is read before it is written, and that the parts of a dispatch, which run in any order, do not
  // conflict.
  void check_order() const {
    std::vector<bool> written(program_.buffers.size(), false);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      written[i] = program_.buffers[i].where != Buffer::Where::arena;
    for (std::size_t number = 0; number < program_.cpu.dispatches.size(); ++number) {
      std::set<int> writes, reads;
      for (const Dispatch::Part& part : program_.cpu.dispatches[number].parts) {
        const auto written_here = written_bindings(kernel(part)), read_here = read_bindings(kernel(part));
        for (std::size_t b = 0; b < part.buffers.size(); ++b) {
          const int id = part.buffers[b];
          const std::string& name = buffer(id).name;
          if (read_here[b] && !is_written(written, id))
            fail_program("dispatch {} reads {} before it is written", number, name);
          if (written_here[b] && (any_overlaps(reads, id) || any_overlaps(writes, id)))
            fail_program("dispatch {} writes {} while another part uses it", number, name);
          if (read_here[b] && any_overlaps(writes, id))
            fail_program("dispatch {} reads {} while another part writes it", number, name);
          if (written_here[b] && buffer(id).where != Buffer::Where::arena &&
              buffer(id).where != Buffer::Where::storage && buffer(id).where != Buffer::Where::pool)
            fail_program("dispatch {} writes {}, which is read-only", number, name);
        }
        for (std::size_t b = 0; b < part.buffers.size(); ++b) {
          if (written_here[b]) writes.insert(part.buffers[b]);
          if (read_here[b]) reads.insert(part.buffers[b]);
        }
      }
      for (const int id : writes) written[static_cast<std::size_t>(id)] = true;
    }
    for (const auto* list : {&program_.outputs, &program_.captures})
      for (const Readable& readable : *list)
        if (!is_written(written, readable.buffer))
          fail_program("{} is read after the run but never written", readable.name);
  }

  void check_merged() const {
    for (std::size_t i = 0; i < program_.cpu.dispatches.size(); ++i) {
      const auto& parts = program_.cpu.dispatches[i].parts;
      if (parts.size() > 1 && !std::all_of(parts.begin(), parts.end(), [&](const Dispatch::Part& part) {
            return kernel(part).kind == KernelSpec::Kind::loop;
          }))
        fail_program("dispatch {} runs several kernels at once, which only loops can do", i);
    }
  }

  // Checks that element-wise kernels read only the element that they overwrite.
  void check_in_place() const {
    for (const Dispatch& dispatch : program_.cpu.dispatches)
      for (const Dispatch::Part& part : dispatch.parts) {
        const KernelSpec& spec = kernel(part);
        if (spec.kind == KernelSpec::Kind::whole) continue;
        for (const Store& store : spec.stores) {
          const auto is_other = [&](const Load& load) {
            return load.binding == store.binding && !reads_what_it_writes(spec, load, store);
          };
          const auto is_operand = [&](const TensorAccess& operand) { return operand.binding == store.binding; };
          if (std::any_of(spec.loads.begin(), spec.loads.end(), is_other) ||
              std::any_of(spec.operands.begin(), spec.operands.end(), is_operand))
            fail_program("{} reads elements of {} other than the ones it writes", part.label,
                         buffer(part.buffers[static_cast<std::size_t>(store.binding)]).name);
        }
      }
  }

  const Program& program_;
  const Target& target_;
  std::vector<std::vector<int>> parts_;  // by buffer: those within it
};

}  // namespace

void verify_dispatches(const Program& program) {
  for (std::size_t i = 0; i < program.cpu.dispatches.size(); ++i) {
    const auto& parts = program.cpu.dispatches[i].parts;
    if (parts.empty()) fail_program("dispatch {} is empty", i);
    for (const Dispatch::Part& part : parts) {
      if (!is_index_of(part.kernel, program.cpu.kernels.size()))
        fail_program("dispatch {} has no kernel {}", i, part.kernel);
      const KernelSpec& kernel = program.cpu.kernels[static_cast<std::size_t>(part.kernel)];
      if (static_cast<int>(part.buffers.size()) != kernel.bindings)
        fail_program("dispatch {} binds {} buffers to a kernel of {}", i, part.buffers.size(), kernel.bindings);
      for (const int number : part.buffers)
        if (!is_index_of(number, program.buffers.size())) fail_program("dispatch {} has no buffer {}", i, number);
    }
  }
}

void verify_cpu(const Program& program, const Target& target) {
  if (program.cpu.dispatches.empty() && program.gpu.emitted) return;
  CpuVerifier(program, target).run();
}

}  // namespace jerboa::detail
