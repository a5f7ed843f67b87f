#pragma once

#include <cstddef>
#include <cstdint>

#include <jerboa/base/dtype.h>

namespace jerboa::cpu {

/// A matrix in a type that is expanded to f32 on reading: f16, bf16, or int8 and int4 in groups that share a scale and
/// possibly a minimum, which is added. Rows are contiguous; with scales, so is the whole matrix.
struct CompactWeights {
  DType dtype = DType::bf16;
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;  ///< for int8 and int4: one per group
  DType scale_dtype = DType::f16;
  std::int64_t row = 0;             ///< elements from one row to the next
  const std::byte* mins = nullptr;  ///< like the scales; null: none
};

/// Values that share a scale. An expanded range of int8 or int4 starts at a group boundary.
inline constexpr std::int64_t weight_group = quantised_group;

/// `count` values of a row, starting at `first`, as f32.
void expand_weights(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to);

/// The scales of `count` values of a row, starting at `first`, one per group; and their minimums, if there are any.
void expand_scales(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to);
void expand_mins(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to);

}  // namespace jerboa::cpu
