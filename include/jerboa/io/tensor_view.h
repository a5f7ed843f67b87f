#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace jerboa {

/// The element types of tensors in files. All are stored little-endian; a BOOL is one byte, 0 or 1.
enum class StoredType { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL };

/// The name that the safetensors format uses: "F32".
std::string_view to_string(StoredType type);
std::optional<StoredType> stored_type_from_string(std::string_view name);
/// Bytes of one element.
std::size_t size_of(StoredType type);

/// A named tensor whose bytes, in row-major order with any alignment, are owned elsewhere.
struct TensorView {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;

  std::size_t elements() const { return bytes.size() / size_of(type); }
};

/// The StoredType of a C++ element type: stored_type_of<float> is F32.
template <typename T>
constexpr StoredType stored_type_of = [] {
  static_assert(std::is_arithmetic_v<T>, "a tensor in a file holds numbers");
  if constexpr (std::is_same_v<T, bool>)
    return StoredType::BOOL;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 8 ? StoredType::F64 : StoredType::F32;
  else if constexpr (sizeof(T) == 8)
    return std::is_signed_v<T> ? StoredType::I64 : StoredType::U64;
  else if constexpr (sizeof(T) == 4)
    return std::is_signed_v<T> ? StoredType::I32 : StoredType::U32;
  else if constexpr (sizeof(T) == 2)
    return std::is_signed_v<T> ? StoredType::I16 : StoredType::U16;
  else
    return std::is_signed_v<T> ? StoredType::I8 : StoredType::U8;
}();

/// A view of values in memory, for writing to a file: `view_of("weight", {2, 3}, std::span<const float>(weight))`.
template <typename T>
TensorView view_of(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
  return {std::move(name), stored_type_of<T>, std::move(shape), std::as_bytes(values)};
}

/// The values, converted from any stored type; exact where f32 can represent them, otherwise rounded to nearest.
std::vector<float> to_f32(const TensorView& tensor);
/// The same into the caller's memory, which has room for exactly the tensor's values.
void to_f32(const TensorView& tensor, std::span<float> values);
/// The values, converted from any stored type; exact except for I64 and U64 beyond 2^53, which are rounded to nearest.
std::vector<double> to_f64(const TensorView& tensor);
/// The values of an integer or BOOL tensor, exactly. Throws FileError for another type and for a value out of range.
std::vector<std::int32_t> to_i32(const TensorView& tensor);

}  // namespace jerboa
