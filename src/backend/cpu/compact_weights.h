#pragma once

#include <cstddef>
#include <cstdint>

#include <jerboa/base/dtype.h>

namespace jerboa::cpu {

/// A matrix in a type that is expanded to f32 as it is read: f16, bf16, or i8 and i4 in groups that share a scale. Rows
/// are contiguous, one after another where there are scales.
struct CompactWeights {
  DType dtype = DType::bf16;
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;  ///< of i8 and i4: one for each group
  DType scale_dtype = DType::f16;
  std::int64_t row = 0;  ///< elements from one row to the next
};

/// Values that share a scale. What is expanded of i8 and i4 begins with a group.
inline constexpr std::int64_t weight_group = quantised_group;

/// `count` values of a row, from `first` on, as f32.
void expand_weights(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to);

/// The scales of `count` values of a row, from `first` on, one for each group.
void expand_scales(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to);

}  // namespace jerboa::cpu
