#pragma once

#include <cstdint>
#include <vector>

#include <jerboa/ir/attrs.h>

namespace jerboa {

/// The numbers behind a RopeAttrs: pair i of a head at position p is rotated by p * frequencies[i] and scaled by
/// magnitude.
struct RopeTable {
  std::vector<double> frequencies;
  double magnitude = 1;
};

/// The table for heads of this size, with scaling as Hugging Face transformers computes it.
RopeTable rope_table(const RopeAttrs& attrs, std::int64_t head_size);

}  // namespace jerboa
