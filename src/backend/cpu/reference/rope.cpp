#include <cmath>

#include <jerboa/ir/rope.h>

#include "backend/cpu/reference/evaluate.h"

namespace jerboa::reference {

template <>
void evaluate<Op::rope>(const Call& call) {
  const auto& attrs = call.as<RopeAttrs>();
  const Value& x = call.in(0);
  const std::int64_t heads = x.shape[1], time = x.shape[2], size = x.shape[3];
  const RopeTable table = rope_table(attrs, size);
  const auto pairs = static_cast<std::int64_t>(table.frequencies.size());
  call.out().data = x.data;  // keeps the features that do not rotate
  for (std::int64_t row = 0; row < x.shape[0] * heads * time; ++row) {
    const std::int64_t b = row / (heads * time), t = row % time;
    const double position = call.has(1) ? call.in(1).data[b * time + t] : static_cast<double>(t);
    const double* from = x.data.data() + row * size;
    double* to = call.out().data.data() + row * size;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t first = attrs.interleaved ? 2 * i : i, second = attrs.interleaved ? 2 * i + 1 : i + pairs;
      const double angle = position * table.frequencies[i];
      const double cosine = std::cos(angle) * table.magnitude;
      const double sine = (attrs.inverse ? -1 : 1) * std::sin(angle) * table.magnitude;
      to[first] = from[first] * cosine - from[second] * sine;
      to[second] = from[second] * cosine + from[first] * sine;
    }
  }
}

}  // namespace jerboa::reference
