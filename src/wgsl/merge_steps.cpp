#include "wgsl/merge_steps.h"

#include <algorithm>
#include <optional>

#include "wgsl/order_steps.h"

namespace jerboa::wgsl {
namespace {

// Beyond this, a step keeps the device busy by itself, and the registers and workgroup memory of others could only
// slow it down.
constexpr std::int64_t most_threads = std::int64_t{1} << 21, most_workgroup_bytes = 8192;
constexpr std::size_t most_text = 1 << 16;

bool is_small(const WrittenStep& written) {
  return written.step.shader >= 0 && written.shader.source.workgroup_bytes <= most_workgroup_bytes &&
         !written.shader.text.uses_subgroup_matrices &&
         written.step.workgroups.upper_bound() * written.shader.source.threads <= most_threads;
}

// Steps that become one, with the bindings of the result.
class Merging {
 public:
  Merging(const Program& program, const Target& target, WrittenStep first)
      : program_(program), target_(target), parts_{std::move(first)} {
    if (is_small(parts_.front())) bindings_of_.push_back(add_bindings(parts_.front(), bindings_).value_or(empty()));
  }

  bool add(WrittenStep& other) {
    const ShaderSource &source = other.shader.source, &first = parts_.front().shader.source;
    if (!is_small(parts_.front()) || !is_small(other) || source.threads != first.threads ||
        text_ + source.source.size() > most_text || memory_with(other) > most_workgroup_bytes)
      return false;
    std::vector<Bound> bindings = bindings_;
    const auto own = add_bindings(other, bindings);
    if (!own || static_cast<int>(bindings.size()) > target_.max_bindings) return false;
    bindings_ = std::move(bindings);
    bindings_of_.push_back(*own);
    text_ += source.source.size();
    memory_ = memory_with(other);
    parts_.push_back(std::move(other));
    return true;
  }

  WrittenStep finish() {
    if (parts_.size() == 1) return std::move(parts_.front());
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
      step.workgroups = step.workgroups + part.step.workgroups;
      step.operations = step.operations + part.step.operations;
      step.label += (i == 0 ? "" : " + ") + part.step.label;
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Dim& count = parts_[i].step.workgroups;
      if (count.is_constant()) {
        parts[i].workgroups = fmt::format("{}u", count.value());
      } else {
        parts[i].workgroups = fmt::format("sizes[{}].{}", step.sizes.size() / 4, "xyzw"[step.sizes.size() % 4]);
        step.sizes.push_back(count);
      }
    }
    Shader::Finished& shader = merged.shader;
    shader.text = merge(parts);
    shader.text.size_vectors = (step.sizes.size() + 3) / 4;
    const ShaderSource& first = parts_.front().shader.source;
    const bool alike = std::all_of(parts_.begin(), parts_.end(),
                                   [&](const WrittenStep& part) { return part.shader.source.name == first.name; });
    shader.source = {alike ? first.name : "several", assemble(shader.text, first.threads), first.threads, memory_};
    return merged;
  }

 private:
  struct Bound {
    GpuStep::Binding binding;
    std::string element;  // of the array that it is declared as
  };
  static std::vector<int> empty() { return {}; }

  // Parts share what they declare alike.
  std::int64_t memory_with(const WrittenStep& other) const {
    const bool known = std::any_of(parts_.begin(), parts_.end(), [&](const WrittenStep& part) {
      return part.shader.text.workgroup_memory == other.shader.text.workgroup_memory;
    });
    return memory_ + (known ? 0 : other.shader.source.workgroup_bytes);
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

  // The numbers of a step's bindings among those of the merged one, of which the missing ones are added; none where one
  // part would write what another binds, or to the buffer that another reads.
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
        if (other.is_read_write() != binding.is_read_write()) return std::nullopt;
        if (other.is_read_write() && overlap(other, binding)) return std::nullopt;
        if (!binding.is_read_write() && other.buffer == binding.buffer && other.offset == binding.offset &&
            other.bytes == binding.bytes && bindings[k].element == element)
          known = k;
      }
      if (!known) {
        known = bindings.size();
        bindings.push_back({binding, element});
      }
      numbers.push_back(static_cast<int>(*known));
    }
    return numbers;
  }

  const Program& program_;
  const Target& target_;
  std::vector<WrittenStep> parts_;
  std::vector<Bound> bindings_;
  std::vector<std::vector<int>> bindings_of_;  // by part
  std::size_t text_ = parts_.front().shader.source.source.size();
  std::int64_t memory_ = parts_.front().shader.source.workgroup_bytes;
};

}  // namespace

std::vector<WrittenStep> order_and_merge(const Program& program, std::vector<WrittenStep> steps, const Target& target) {
  std::vector<const GpuStep*> plain;
  for (const WrittenStep& written : steps) plain.push_back(&written.step);
  const std::vector<int> waves = waves_of(program, plain);
  std::vector<std::size_t> order(steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return waves[a] < waves[b]; });
  std::vector<WrittenStep> result;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    std::vector<Merging> merged;
    for (; end < order.size() && waves[order[end]] == waves[order[begin]]; ++end) {
      WrittenStep& written = steps[order[end]];
      const bool added = target.fuse && std::any_of(merged.begin(), merged.end(),
                                                    [&](Merging& merging) { return merging.add(written); });
      if (!added) merged.emplace_back(program, target, std::move(written));
    }
    for (Merging& merging : merged) result.push_back(merging.finish());
    begin = end;
  }
  return result;
}

}  // namespace jerboa::wgsl
