#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace jerboa {

/// The bytes of an IDX file, the format that MNIST comes in.
struct IdxBytes {
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> values;  ///< of the file's own memory
};

/// An IDX file of bytes with so many axes. Throws FileError, whose message starts with `name`, where it is another file
/// or its header does not fit its length.
IdxBytes parse_idx(std::span<const std::byte> file, std::size_t axes, const std::string& name);

}  // namespace jerboa
