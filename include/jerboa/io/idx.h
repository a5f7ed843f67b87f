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
  std::span<const std::uint8_t> values;  ///< points into the file's bytes
};

/// Parses an IDX file of bytes with the given number of axes. Throws FileError, with a message that starts with `name`,
/// if it is some other file or its header does not match its length.
IdxBytes parse_idx(std::span<const std::byte> file, std::size_t axes, const std::string& name);

}  // namespace jerboa
