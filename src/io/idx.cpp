#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/io/idx.h>

namespace jerboa {

// Two zero bytes, the type 0x08, the number of axes, their sizes as big-endian 32-bit numbers; then the values.
IdxBytes parse_idx(std::span<const std::byte> file, std::size_t axes, const std::string& name) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(file[i]); };
  const std::size_t header = 4 + 4 * axes;
  if (file.size() < header || byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) != axes)
    throw FileError(fmt::format("{}: not an IDX file of bytes with {} axes", name, axes));
  IdxBytes idx;
  const std::size_t stored = file.size() - header;
  bool empty = false;
  for (std::size_t i = 0; i < axes; ++i) {
    const std::size_t at = 4 + 4 * i;
    const std::size_t size = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    idx.shape.push_back(static_cast<std::int64_t>(size));
    empty = empty || size == 0;
  }
  std::size_t count = empty ? 0 : 1;
  for (const std::int64_t axis : idx.shape) {
    const auto size = static_cast<std::size_t>(axis);
    if (!empty && count > stored / size)
      throw FileError(fmt::format("{}: the sizes in the header need more than the file's {} bytes", name, file.size()));
    count *= size;
  }
  if (count != stored)
    throw FileError(fmt::format("{}: the header specifies {} values, but the file holds {}", name, count, stored));
  idx.values = {reinterpret_cast<const std::uint8_t*>(file.data()) + header, stored};
  return idx;
}

}  // namespace jerboa
