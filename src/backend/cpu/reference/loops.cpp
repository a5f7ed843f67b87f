#include "backend/cpu/reference/loops.h"

namespace jerboa::reference {

Sizes broadcast_strides(const Sizes& from, const Sizes& to) {
  const Sizes from_strides = strides_of(from);
  Sizes strides(to.size(), 0);
  const std::size_t added = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) strides[i + added] = from[i] == 1 ? 0 : from_strides[i];
  return strides;
}

void advance(Sizes& index, const Sizes& sizes) {
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    if (++index[axis] < sizes[axis]) return;
    index[axis] = 0;
  }
}

double wrapped(double value, DType dtype) {
  const auto bits = [&] { return static_cast<std::uint32_t>(static_cast<std::int64_t>(value)); };
  if (dtype == DType::i32) return static_cast<std::int32_t>(bits());
  return dtype == DType::u32 ? bits() : value;
}

}  // namespace jerboa::reference
