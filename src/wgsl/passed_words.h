#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// The position of each version of each activation among the words that the phases of a dispatch pass on: an activation
/// that is written again after it was read gets new words. Kernels write each element once, so that no word is written
/// twice, and a cache line that was read never changes afterwards.
class PassedWords {
 public:
  explicit PassedWords(const Program& program) : program_(program), current_(program.buffers.size()) {}

  /// The first word of what a phase reads.
  std::int64_t place_to_read(const GpuStep::Binding& binding);
  /// The first word of what a phase writes: words that no phase has read yet, because several phases may each write a
  /// part.
  std::int64_t place_to_write(const GpuStep::Binding& binding);
  /// The first word of a buffer's final contents; none if no phase uses it.
  std::optional<std::int64_t> last_place(int buffer) const;
  std::int64_t count() const { return count_; }

 private:
  struct Version {
    std::optional<std::int64_t> first;
    bool was_read = false;
  };
  std::size_t root(const GpuStep::Binding& binding) const;
  std::int64_t inside(const GpuStep::Binding& binding) const;
  void open(Version& version, std::size_t buffer);

  const Program& program_;
  std::vector<Version> current_;  // by buffer
  std::int64_t count_ = PersistentDispatch::counter_words;
};

}  // namespace jerboa::wgsl
