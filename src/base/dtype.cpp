#include <array>

#include <jerboa/base/dtype.h>

#include "base/integers.h"

namespace jerboa {
namespace {

struct Row {
  std::string_view name;
  int bits;
};

constexpr std::array<Row, 8> rows{
    {{"f32", 32}, {"f16", 16}, {"bf16", 16}, {"i32", 32}, {"u32", 32}, {"boolean", 32}, {"i8", 8}, {"i4", 4}}};

}  // namespace

std::string_view name(DType dtype) { return rows[static_cast<std::size_t>(dtype)].name; }

int bits(DType dtype) { return rows[static_cast<std::size_t>(dtype)].bits; }

std::int64_t bytes_of(DType dtype, std::int64_t elements) { return detail::divide_up(elements * bits(dtype), 8); }

std::optional<DType> dtype_from_name(std::string_view text) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace jerboa
