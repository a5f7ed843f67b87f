#include "backend/cpu/pack.h"

#include <jerboa/base/float16.h>

namespace jerboa::cpu {
namespace {

// Calls visit(flat index of the element, its offset) in row-major order.
template <class Visit>
void for_each_place(std::int64_t offset, const std::vector<std::int64_t>& sizes,
                    const std::vector<std::int64_t>& strides, Visit visit) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  std::vector<std::int64_t> index(sizes.size(), 0);
  std::int64_t place = offset;
  for (std::int64_t number = 0; number < count; ++number) {
    visit(number, place);
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < sizes[axis]) break;
      place -= strides[axis] * sizes[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

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
