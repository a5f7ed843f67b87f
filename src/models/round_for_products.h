#pragma once

#include <span>

#include <jerboa/models/quantise.h>

#include "models/groups_in_lanes.h"
#include "models/quantise_group.h"

namespace jerboa::models {

/// Writes groups to their places in a quantised weight, counted from a first group.
class GroupWriter {
 public:
  GroupWriter(const QuantisedView& to, std::int64_t first_group);

  DType dtype() const { return dtype_; }
  Rounding rounding(GroupScale scale) const;
  void write(std::int64_t group, GroupScale scale, const Group& integers) const;
  GroupMemory from(std::int64_t group) const;

 private:
  DType dtype_;
  std::int64_t group_bytes_;
  std::uint8_t* weights_;
  std::uint16_t *scales_, *mins_;  // null if there are no minimums
};

/// Quantises whole groups with the least squared error, on the calling thread; `first_group` is the index of the first.
void quantise_groups(std::span<const float> values, std::int64_t first_group, const GroupWriter& writer);
/// The same one group at a time, several times slower.
void quantise_one_by_one(std::span<const float> values, std::int64_t first_group, const GroupWriter& writer);

/// Quantises whole rows of `in` weights so that their products with such inputs have a small squared error. With U the
/// Cholesky factor of the inputs' sums, Uᵀ U, that error is the squared length of U (w - q). Weights are rounded from
/// the last of a row to the first, so that each compensates for the errors of those after it: it becomes the integer
/// closest to w[i] + the sum over j > i of U[i, j] / U[i, i] (w[j] - q[j]).
void round_for_products(std::span<const float> values, std::int64_t in, const ProductInputs& inputs,
                        const GroupWriter& writer);

}  // namespace jerboa::models
