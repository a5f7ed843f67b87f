#include "lower/target.h"

#include <algorithm>

#include "base/integers.h"

namespace jerboa {

Target Target::webgpu_default() {
  Target target;
  target.name = "webgpu";
  target.max_buffer_bytes = 256 << 20;
  target.max_binding_bytes = 128 << 20;
  target.max_bindings = 8;
  target.offset_alignment = 256;
  target.separate_arenas = true;
  target.pool_updates = true;
  return target;
}

int detail::binding_count(std::int64_t bytes, const Target& target) {
  return static_cast<int>(std::max<std::int64_t>(1, detail::divide_up(bytes, target.max_binding_bytes)));
}

std::int64_t detail::bytes_of(const TensorType& type) {
  return (element_count(type.shape) * Dim(bits(type.dtype))).upper_bound() / 8;
}

}  // namespace jerboa
