#include "base/crc32.h"

#include <array>

namespace jerboa {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1u) != 0 ? 0xedb88320u : 0u);
    table[i] = value;
  }
  return table;
}

constexpr auto table = make_table();

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t value = 0xffffffffu;
  for (const char byte : bytes) value = table[(value ^ static_cast<unsigned char>(byte)) & 0xffu] ^ (value >> 8);
  return ~value;
}

}  // namespace jerboa
