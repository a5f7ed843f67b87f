#pragma once

#include <cstdint>
#include <limits>

#include <jerboa/base/dtype.h>

namespace jerboa::detail {

/// The highest finite value of a type.
constexpr double highest_value(DType dtype) {
  switch (dtype) {
    case DType::f16: return 65504;
    case DType::bf16: return 0x1.fep127;
    case DType::i32: return std::numeric_limits<std::int32_t>::max();
    case DType::u32: return std::numeric_limits<std::uint32_t>::max();
    default: return std::numeric_limits<float>::max();
  }
}

/// The lowest finite value of a type.
constexpr double lowest_value(DType dtype) {
  if (dtype == DType::u32) return 0;
  return dtype == DType::i32 ? std::numeric_limits<std::int32_t>::lowest() : -highest_value(dtype);
}

}  // namespace jerboa::detail
