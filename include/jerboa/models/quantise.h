#pragma once

#include <span>
#include <string_view>

#include <jerboa/base/host_tensor.h>

namespace jerboa::models {

/// The suffixes that name the parameters of a quantised weight.
inline constexpr std::string_view quantised_suffix = ".quantised";
inline constexpr std::string_view scales_suffix = ".scales";

/// A weight [out, in] as matmul_quantised takes it.
struct Quantised {
  HostTensor weight;  ///< i8 or i4
  HostTensor scales;  ///< f16[out, in / 32]
};

/// Rounds each group of 32 weights of a row to integers times a shared scale: from -127 to 127 for int8, from -8 to 7
/// for int4. `in` must be a multiple of 32.
Quantised quantise(std::span<const float> values, std::int64_t out, std::int64_t in, DType dtype);

}  // namespace jerboa::models
