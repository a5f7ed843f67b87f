#include "wgsl/merge_steps.h"

#include <algorithm>
#include <optional>

#include "base/stable_sort.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/order_steps.h"

namespace jerboa::wgsl {
namespace {

constexpr std::size_t most_text = 1 << 16;

// The resources that a dispatch of some parts occupies on the device.
struct Occupied {
  std::int64_t workgroups = 0, workgroups_of_largest = 0, threads = 0, threads_of_largest = 0;
  std::int64_t bytes = 0;  // of a workgroup's memory
  bool uses_subgroup_matrices = false;

  explicit Occupied(const WrittenStep& written)
      : workgroups(written.step.workgroups.upper_bound()),
        workgroups_of_largest(workgroups),
        threads(workgroups * written.shader.source.threads),
        threads_of_largest(threads),
        bytes(written.shader.source.workgroup_bytes),
        uses_subgroup_matrices(written.shader.text.uses_subgroup_matrices) {}

  // Beyond this, a part keeps the device busy alone, and the registers and workgroup memory of others could only slow
  // it down.
  bool has_small_parts() const {
    constexpr std::int64_t most_threads = std::int64_t{1} << 21, most_bytes = 8192;
    return threads_of_largest <= most_threads && bytes <= most_bytes && !uses_subgroup_matrices;
  }

  // If no part fills the device alone, and all together barely exceed it, the resources of others slow none of them
  // down.
  bool fits_at_once(const Target& target) const {
    constexpr std::int64_t resident_bytes = 24 << 10, resident_threads = 512, few = 128;
    const std::int64_t residents = target.resident_workgroups > 0 ? target.resident_workgroups : few;
    const std::int64_t rounds = uses_subgroup_matrices ? 1 : 2;
    return bytes <= target.workgroup_bytes && workgroups_of_largest * bytes <= residents * resident_bytes &&
           workgroups * bytes <= rounds * residents * resident_bytes &&
           threads_of_largest <= residents * resident_threads && threads <= rounds * residents * resident_threads;
  }
  bool can_merge(const Target& target) const { return has_small_parts() || fits_at_once(target); }
};

// Steps that are merged into one, with the bindings of the result.
class Merging {
 public:
  Merging(const Program& program, const Target& target, bool splits, WrittenStep first)
      : program_(program), target_(target), splits_(splits), parts_{std::move(first)}, occupied_(parts_.front()) {
    if (is_shader(parts_.front())) bindings_of_.push_back(add_bindings(parts_.front(), bindings_).value_or(empty()));
  }

  bool add(WrittenStep& other) {
    const ShaderSource& source = other.shader.source;
    if (!is_shader(parts_.front()) || !is_shader(other) || text_ + source.source.size() > most_text) return false;
    const int threads = std::max(threads_, source.threads);
    if (!can_have(other, threads) ||
        !std::all_of(parts_.begin(), parts_.end(), [&](const WrittenStep& part) { return can_have(part, threads); }))
      return false;
    const Occupied occupied = occupied_with(other);
    if (!occupied.can_merge(target_)) return false;
    std::vector<Bound> bindings = bindings_;
    const auto numbers = add_bindings(other, bindings);
    if (!numbers || static_cast<int>(bindings.size()) > target_.max_bindings) return false;
    bindings_ = std::move(bindings);
    bindings_of_.push_back(*numbers);
    text_ += source.source.size();
    threads_ = threads;
    occupied_ = occupied;
    memory_ = shared(memory_, other.shader.text.workgroup_memory);
    parts_.push_back(std::move(other));
    return true;
  }

  WrittenStep finish() {
    if (parts_.size() == 1) return std::move(parts_.front());
    put_longest_first();
    WrittenStep merged;
    GpuStep& step = merged.step;
    step.shader = parts_.front().step.shader;
    for (const Bound& bound : bindings_) step.bindings.push_back(bound.binding);
    std::vector<ShaderPart> parts;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const WrittenStep& part = parts_[i];
      parts.push_back({&part.shader.text, bindings_of_[i], step.sizes.size() / 4, {}});
      step.sizes.insert(step.sizes.end(), part.step.sizes.begin(), part.step.sizes.end());
      while (step.sizes.size() % 4 != 0) step.sizes.emplace_back(0);
      step.workgroups = step.workgroups + workgroups_of(part);
      step.operations = step.operations + part.step.operations;
      step.label += (i == 0 ? "" : " + ") + part.step.label;
      if constexpr (has_phases)
        merged.operations_of.insert(merged.operations_of.end(), part.operations_of.begin(), part.operations_of.end());
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Dim count = workgroups_of(parts_[i]);
      parts[i].threads = parts_[i].shader.source.threads;
      parts[i].split = threads_ / parts[i].threads;
      if (parts[i].split > 1) parts[i].original_workgroups = fmt::format("{}u", parts_[i].step.workgroups.value());
      if (count.is_constant()) {
        parts[i].workgroups = fmt::format("{}u", count.value());
      } else {
        parts[i].workgroups = fmt::format("sizes[{}].{}", step.sizes.size() / 4, "xyzw"[step.sizes.size() % 4]);
        step.sizes.push_back(count);
      }
    }
    Shader::Finished& shader = merged.shader;
    shader.text = merge(parts);
    for (std::size_t i = 0; i < bindings_.size(); ++i)
      shader.text.buffers[i].read_write = bindings_[i].binding.is_read_write();
    shader.text.size_vectors = (step.sizes.size() + 3) / 4;
    const ShaderSource first = parts_.front().shader.source;
    const bool alike = std::all_of(parts_.begin(), parts_.end(),
                                   [&](const WrittenStep& part) { return part.shader.source.name == first.name; });
    shader.source = {alike ? first.name : "several", assemble(shader.text, threads_), threads_, occupied_.bytes};
    return merged;
  }

 private:
  struct Bound {
    GpuStep::Binding binding;
    std::string element;  // of the array that it is declared as
    int beside;
  };
  // Workgroups start in order, so the longest-running parts must come first.
  void put_longest_first() {
    const auto work = [&](std::size_t part) {
      const GpuStep& step = parts_[part].step;
      return step.operations.upper_bound() / std::max<std::int64_t>(1, step.workgroups.upper_bound());
    };
    std::vector<WrittenStep> parts;
    std::vector<std::vector<int>> bindings_of;
    const auto longer = [&](std::size_t a, std::size_t b) { return work(a) > work(b); };
    for (const std::size_t part : detail::stable_order(parts_.size(), longer)) {
      parts.push_back(std::move(parts_[part]));
      bindings_of.push_back(std::move(bindings_of_[part]));
    }
    parts_ = std::move(parts);
    bindings_of_ = std::move(bindings_of);
  }

  // Whether a part can run in workgroups of this many threads, each of which may contain several of the part's.
  bool can_have(const WrittenStep& part, int threads) const {
    const int part_threads = part.shader.source.threads;
    return part_threads == threads || (splits_ && threads % part_threads == 0 && part.step.workgroups.is_constant() &&
                                       has_independent_threads(part.shader.text));
  }
  Dim workgroups_of(const WrittenStep& part) const {
    return groups_of(part.step.workgroups, threads_ / part.shader.source.threads);
  }

  static std::vector<int> empty() { return {}; }
  static bool is_shader(const WrittenStep& written) { return written.step.shader >= 0; }

  Occupied occupied_with(const WrittenStep& other) const {
    Occupied both(other);
    both.workgroups += occupied_.workgroups;
    both.workgroups_of_largest = std::max(both.workgroups_of_largest, occupied_.workgroups_of_largest);
    both.threads += occupied_.threads;
    both.threads_of_largest = std::max(both.threads_of_largest, occupied_.threads_of_largest);
    both.uses_subgroup_matrices |= occupied_.uses_subgroup_matrices;
    both.bytes = workgroup_bytes(shared(memory_, other.shader.text.workgroup_memory));
    return both;
  }

  // The memory that a device allocates as one buffer.
  std::pair<int, int> memory_of(int number) const {
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(number)];
    return buffer.where == Buffer::Where::arena ? std::pair(0, buffer.arena) : std::pair(1, root_of(program_, number));
  }

  bool overlap(const GpuStep::Binding& a, const GpuStep::Binding& b) const {
    const auto start = [&](const GpuStep::Binding& binding) {
      return program_.buffers[static_cast<std::size_t>(binding.buffer)].offset + binding.offset;
    };
    return start(a) < start(b) + b.bytes && start(b) < start(a) + a.bytes;
  }

  // The numbers of a step's bindings among those of the merged step, after adding the missing ones; none if one part
  // would write what another binds, or to a buffer that another reads.
  std::optional<std::vector<int>> add_bindings(const WrittenStep& written, std::vector<Bound>& bindings) const {
    std::vector<int> numbers;
    const std::size_t others = bindings.size();
    for (std::size_t i = 0; i < written.step.bindings.size(); ++i) {
      const GpuStep::Binding& binding = written.step.bindings[i];
      const std::string& element = written.shader.text.buffers[i].element;
      std::optional<std::size_t> known;
      for (std::size_t k = 0; k < others; ++k) {
        const GpuStep::Binding& other = bindings[k].binding;
        if (memory_of(other.buffer) != memory_of(binding.buffer)) continue;
        if (other.written != binding.written) return std::nullopt;
        const bool same = other.buffer == binding.buffer && other.offset == binding.offset &&
                          other.bytes == binding.bytes && bindings[k].element == element;
        const bool are_beside = written.beside >= 0 && bindings[k].beside == written.beside;
        if (other.written && overlap(other, binding) && !(same && are_beside)) return std::nullopt;
        if (same && (are_beside || !binding.written)) known = k;
      }
      if (!known) {
        known = bindings.size();
        bindings.push_back({binding, element, written.beside});
      }
      bindings[*known].binding.read_write |= binding.read_write;
      numbers.push_back(static_cast<int>(*known));
    }
    bind_alike(bindings);
    return numbers;
  }

  // Memory that is only read is bound read_write everywhere or nowhere, and not where bindings overlap.
  void bind_alike(std::vector<Bound>& bindings) const {
    const auto is_only_read = [](const Bound& bound) { return !bound.binding.written; };
    for (const Bound& bound : bindings) {
      if (!is_only_read(bound)) continue;
      std::vector<GpuStep::Binding*> alike;
      for (Bound& other : bindings)
        if (is_only_read(other) && memory_of(other.binding.buffer) == memory_of(bound.binding.buffer))
          alike.push_back(&other.binding);
      bool read_write = false, overlaps = false;
      for (std::size_t i = 0; i < alike.size(); ++i) {
        read_write |= alike[i]->read_write;
        for (std::size_t k = 0; k < i; ++k) overlaps |= overlap(*alike[i], *alike[k]);
      }
      for (GpuStep::Binding* binding : alike) binding->read_write = read_write && !overlaps;
    }
  }

  const Program& program_;
  const Target& target_;
  bool splits_;
  std::vector<WrittenStep> parts_;
  std::vector<Bound> bindings_;
  std::vector<std::vector<int>> bindings_of_;  // by part
  std::size_t text_ = parts_.front().shader.source.source.size();
  int threads_ = parts_.front().shader.source.threads;
  Occupied occupied_;
  std::vector<ShaderText::WorkgroupArray> memory_ = parts_.front().shader.text.workgroup_memory;
};

}  // namespace

std::vector<WrittenStep> order_and_merge(const Program& program, std::vector<WrittenStep> steps, const Target& target,
                                         bool splits) {
  std::vector<const GpuStep*> plain;
  std::vector<int> beside;
  for (const WrittenStep& written : steps) {
    plain.push_back(&written.step);
    beside.push_back(written.beside);
  }
  const std::vector<int> waves = waves_of(program, plain, beside);
  const std::vector<std::size_t> order =
      detail::stable_order(steps.size(), [&](std::size_t a, std::size_t b) { return waves[a] < waves[b]; });
  // Drivers on the CPU take several times longer to compile a merged shader than its parts, and start dispatches fast.
  const bool merges = target.fuse && !target.software;
  std::vector<WrittenStep> result;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    std::vector<Merging> merged;
    for (; end < order.size() && waves[order[end]] == waves[order[begin]]; ++end) {
      WrittenStep& written = steps[order[end]];
      const bool added =
          merges && std::any_of(merged.begin(), merged.end(), [&](Merging& merging) { return merging.add(written); });
      if (!added) merged.emplace_back(program, target, splits, std::move(written));
    }
    for (Merging& merging : merged) result.push_back(merging.finish());
    begin = end;
  }
  return result;
}

}  // namespace jerboa::wgsl
