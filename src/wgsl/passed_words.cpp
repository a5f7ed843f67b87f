#include "wgsl/passed_words.h"

#include "base/integers.h"
#include "lower/index.h"
#include "wgsl/refusal.h"

namespace jerboa::wgsl {

using detail::index;

std::int64_t PassedWords::place_to_read(const GpuStep::Binding& binding) {
  Version& version = current_[root(binding)];
  if (!version.first) open(version, root(binding));
  version.was_read = true;
  return *version.first + inside(binding);
}

std::int64_t PassedWords::place_to_write(const GpuStep::Binding& binding) {
  Version& version = current_[root(binding)];
  if (!version.first || version.was_read) open(version, root(binding));
  return *version.first + inside(binding);
}

std::optional<std::int64_t> PassedWords::last_place(int buffer) const {
  const Version& version = current_[index(root_of(program_, buffer))];
  if (!version.first) return std::nullopt;
  return *version.first + inside({.buffer = buffer});
}

std::size_t PassedWords::root(const GpuStep::Binding& binding) const {
  return index(root_of(program_, binding.buffer));
}

std::int64_t PassedWords::inside(const GpuStep::Binding& binding) const {
  const Buffer& buffer = program_.buffers[index(binding.buffer)];
  if (buffer.dtype != program_.buffers[root(binding)].dtype)
    throw Refusal{"a tensor is part of another one with a different type"};
  return (buffer.inside + binding.offset) * 8 / bits(buffer.dtype);
}

void PassedWords::open(Version& version, std::size_t buffer) {
  constexpr std::int64_t alignment = 32;  // a cache line
  const Buffer& root = program_.buffers[buffer];
  version = {count_, false};
  count_ += detail::round_up(detail::divide_up(root.bytes * 8, bits(root.dtype)), alignment);
}

}  // namespace jerboa::wgsl
