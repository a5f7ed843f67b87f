#pragma once

#include <cstdint>

namespace jerboa::cpu {

/// The rows of a product, each group of 32 values rounded to 8 bits times a scale, as x86 multiplies them with int8 or
/// int4 weights. Groups whose values are not all finite have a scale of NaN.
struct RoundedRows {
  std::int64_t rows = 0, groups = 0;
  /// [rows, groups, 32]. For int4 weights, whose groups hold their first 16 weights in the low halves of 16 bytes, two
  /// groups are together: the first halves of both, then their second halves.
  std::int8_t* values = nullptr;
  std::int32_t* starts = nullptr;  ///< [rows, groups, 8], for int8 weights: -128 times the sums of four values
  float* scales = nullptr;         ///< [rows, groups]
  float* sums = nullptr;           ///< [rows, groups]: of the values before they were rounded
  float* rounded_sums = nullptr;   ///< [rows, groups]: of the rounded values, times the scale
};

}  // namespace jerboa::cpu
