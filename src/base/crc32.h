#pragma once

#include <cstdint>
#include <string_view>

namespace jerboa {

/// CRC-32 as in gzip and PNG: detects corruption, not tampering.
std::uint32_t crc32(std::string_view bytes);

}  // namespace jerboa
