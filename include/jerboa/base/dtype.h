#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace jerboa {

/// Element types. i8 and i4 are storage only: quantised weights, which no element-wise op takes. An int4 value is from
/// -8 to 7 and is stored with 8 added, 32 values in 16 bytes: byte j holds value j in its low nibble and value j + 16
/// in its high nibble.
enum class DType : std::uint8_t { f32, f16, bf16, i32, u32, boolean, i8, i4 };

/// The number of consecutive quantised weights of a row that share a scale.
inline constexpr std::int64_t quantised_group = 32;

std::string_view name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view text);

/// Bits of one element in memory. A boolean takes 32, because that is what a GPU can address.
int bits(DType dtype);
/// Bytes of this many contiguous elements.
std::int64_t bytes_of(DType dtype, std::int64_t elements);

constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }
constexpr bool is_integer(DType dtype) { return dtype == DType::i32 || dtype == DType::u32; }
constexpr bool is_numeric(DType dtype) { return is_float(dtype) || is_integer(dtype); }

}  // namespace jerboa
