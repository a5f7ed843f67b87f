#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/io/tensor_source.h>

namespace jerboa {

void TensorSource::read_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const {
  const std::size_t there = entry(name).bytes;
  if (from > there || bytes.size() > there - from)
    throw UsageError(
        fmt::format("tensor \"{}\" has {} bytes, not {} from byte {} on", name, there, bytes.size(), from));
  if (bytes.size() == there) return read(name, bytes);
  read_checked_part(name, bytes, from);
}

void TensorSource::read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const {
  std::vector<std::byte> all(entry(name).bytes);
  read(name, all);
  std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(from), bytes.size(), bytes.begin());
}

}  // namespace jerboa
