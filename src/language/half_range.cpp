#include "language/half_range.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::detail {
namespace {

// The largest bit pattern without its sign, which orders floats by size, NaN last.
template <class Bits>
Bits largest_bits(std::span<const std::byte> bytes) {
  constexpr auto without_sign = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  Bits largest = 0;
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    largest = std::max(largest, static_cast<Bits>(value & without_sign));
  }
  return largest;
}

// 65520 is the smallest number that f16 rounds to infinity.
constexpr std::uint32_t first_too_large = std::bit_cast<std::uint32_t>(65520.0f);

bool fits(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::f32) return largest_bits<std::uint32_t>(bytes) < first_too_large;
  if (dtype == DType::bf16) return std::uint32_t{largest_bits<std::uint16_t>(bytes)} << 16 < first_too_large;
  return true;
}

}  // namespace

void check_fits_halves(const Graph& graph, const std::string& param, std::span<const std::byte> bytes) {
  const TensorId id = graph.find(param);
  if (id == no_tensor || graph.shape(id).size() < 2 || fits(graph.type(id).dtype, bytes)) return;
  throw UsageError(fmt::format(
      "{} holds larger numbers than f16 (65504), with which mixed precision multiplies: use full precision", param));
}

}  // namespace jerboa::detail
