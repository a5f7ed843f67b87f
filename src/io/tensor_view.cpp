#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/io/tensor_view.h>

#include "base/convert_floats.h"

namespace jerboa {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are stored little-endian and used without conversion");

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::size_t size;
};

constexpr std::array type_table{
    TypeRow{StoredType::F64, "F64", 8},   TypeRow{StoredType::F32, "F32", 4}, TypeRow{StoredType::F16, "F16", 2},
    TypeRow{StoredType::BF16, "BF16", 2}, TypeRow{StoredType::I64, "I64", 8}, TypeRow{StoredType::I32, "I32", 4},
    TypeRow{StoredType::I16, "I16", 2},   TypeRow{StoredType::I8, "I8", 1},   TypeRow{StoredType::U64, "U64", 8},
    TypeRow{StoredType::U32, "U32", 4},   TypeRow{StoredType::U16, "U16", 2}, TypeRow{StoredType::U8, "U8", 1},
    TypeRow{StoredType::BOOL, "BOOL", 1},
};

constexpr const TypeRow& row_of(StoredType type) { return type_table[static_cast<std::size_t>(type)]; }

static_assert(
    [] {
      for (const auto& row : type_table)
        if (&row != &row_of(row.type)) return false;
      return true;
    }(),
    "the table is indexed by StoredType");

/// Reads the elements, as Stored, from bytes of any alignment and converts each.
template <typename Stored, typename To, typename Convert>
void convert_each(const TensorView& tensor, std::span<To> result, Convert convert) {
  for (std::size_t i = 0; i < result.size(); ++i) {
    Stored value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(Stored), sizeof(Stored));
    result[i] = convert(value, i);
  }
}

template <typename To>
void to_floating(const TensorView& tensor, std::span<To> values) {
  if (values.size() != tensor.elements())
    throw UsageError(
        fmt::format("tensor \"{}\" has {} elements, not {}", tensor.name, tensor.elements(), values.size()));
  const auto plain = [](auto value, std::size_t) { return static_cast<To>(value); };
  const auto from_f16 = [](std::uint16_t bits, std::size_t) { return static_cast<To>(f16_to_f32(bits)); };
  const auto from_bf16 = [](std::uint16_t bits, std::size_t) { return static_cast<To>(bf16_to_f32(bits)); };
  const auto from_bool = [](std::uint8_t byte, std::size_t) { return static_cast<To>(byte != 0); };
  switch (tensor.type) {
    case StoredType::F64: return convert_each<double>(tensor, values, plain);
    case StoredType::F32: return convert_each<float>(tensor, values, plain);
    case StoredType::F16: return convert_each<std::uint16_t>(tensor, values, from_f16);
    case StoredType::BF16: return convert_each<std::uint16_t>(tensor, values, from_bf16);
    case StoredType::I64: return convert_each<std::int64_t>(tensor, values, plain);
    case StoredType::I32: return convert_each<std::int32_t>(tensor, values, plain);
    case StoredType::I16: return convert_each<std::int16_t>(tensor, values, plain);
    case StoredType::I8: return convert_each<std::int8_t>(tensor, values, plain);
    case StoredType::U64: return convert_each<std::uint64_t>(tensor, values, plain);
    case StoredType::U32: return convert_each<std::uint32_t>(tensor, values, plain);
    case StoredType::U16: return convert_each<std::uint16_t>(tensor, values, plain);
    case StoredType::U8: return convert_each<std::uint8_t>(tensor, values, plain);
    case StoredType::BOOL: return convert_each<std::uint8_t>(tensor, values, from_bool);
  }
  throw UsageError(fmt::format("tensor \"{}\" has no valid type", tensor.name));
}

void to_integers(const TensorView& tensor, std::span<std::int32_t> values) {
  using To = std::int32_t;
  const auto exact = [&](auto value, std::size_t i) {
    if (!std::in_range<To>(value))
      throw FileError(
          fmt::format("tensor \"{}\": element {} is {}, which does not fit in 32 bits", tensor.name, i, value));
    return static_cast<To>(value);
  };
  switch (tensor.type) {
    case StoredType::I64: return convert_each<std::int64_t>(tensor, values, exact);
    case StoredType::I32: return convert_each<std::int32_t>(tensor, values, exact);
    case StoredType::I16: return convert_each<std::int16_t>(tensor, values, exact);
    case StoredType::I8: return convert_each<std::int8_t>(tensor, values, exact);
    case StoredType::U64: return convert_each<std::uint64_t>(tensor, values, exact);
    case StoredType::U32: return convert_each<std::uint32_t>(tensor, values, exact);
    case StoredType::U16: return convert_each<std::uint16_t>(tensor, values, exact);
    case StoredType::U8: return convert_each<std::uint8_t>(tensor, values, exact);
    case StoredType::BOOL:
      return convert_each<std::uint8_t>(tensor, values,
                                        [](std::uint8_t byte, std::size_t) { return byte != 0 ? 1 : 0; });
    case StoredType::F64:
    case StoredType::F32:
    case StoredType::F16:
    case StoredType::BF16: break;
  }
  throw FileError(fmt::format("tensor \"{}\" is {}, but integers are needed", tensor.name, to_string(tensor.type)));
}

}  // namespace

std::string_view to_string(StoredType type) { return row_of(type).name; }

std::size_t size_of(StoredType type) { return row_of(type).size; }

std::optional<StoredType> stored_type_from_string(std::string_view name) {
  for (const auto& row : type_table)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::vector<float> to_f32(const TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  to_f32(tensor, values);
  return values;
}

void to_f32(const TensorView& tensor, std::span<float> values) {
  const bool fits = values.size() == tensor.elements();
  if (fits && tensor.type == StoredType::BF16) return detail::widen_bf16(tensor.bytes, values);
  if (fits && tensor.type == StoredType::F16) return detail::widen_f16(tensor.bytes, values);
  to_floating<float>(tensor, values);
}

std::vector<double> to_f64(const TensorView& tensor) {
  std::vector<double> values(tensor.elements());
  to_floating<double>(tensor, values);
  return values;
}

std::vector<std::int32_t> to_i32(const TensorView& tensor) {
  std::vector<std::int32_t> values(tensor.elements());
  to_integers(tensor, values);
  return values;
}

}  // namespace jerboa
