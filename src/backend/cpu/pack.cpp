#include "backend/cpu/pack.h"

#include <jerboa/base/float16.h>

#include "base/strided.h"

namespace jerboa::cpu {

using detail::for_each_place;

void pack_f32(const std::byte* memory, DType dtype, std::int64_t offset, const std::vector<std::int64_t>& sizes,
              const std::vector<std::int64_t>& strides, float* out) {
  const auto* wide = reinterpret_cast<const float*>(memory);
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(memory);
  for_each_place(offset, sizes, strides, [&](std::int64_t number, std::int64_t place) {
    if (dtype == DType::f16)
      out[number] = f16_to_f32(narrow[place]);
    else if (dtype == DType::bf16)
      out[number] = bf16_to_f32(narrow[place]);
    else
      out[number] = wide[place];
  });
}

void unpack_f32(const float* values, std::byte* memory, DType dtype, std::int64_t offset,
                const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
  auto* wide = reinterpret_cast<float*>(memory);
  auto* narrow = reinterpret_cast<std::uint16_t*>(memory);
  for_each_place(offset, sizes, strides, [&](std::int64_t number, std::int64_t place) {
    if (dtype == DType::f16)
      narrow[place] = f32_to_f16(values[number]);
    else if (dtype == DType::bf16)
      narrow[place] = f32_to_bf16(values[number]);
    else
      wide[place] = values[number];
  });
}

}  // namespace jerboa::cpu
