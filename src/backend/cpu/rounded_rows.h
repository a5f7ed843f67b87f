#pragma once

#include <cstdint>

namespace jerboa::cpu {

/// The rows of a product, with each group of 32 values rounded to 8 bits times a scale, in the layouts that x86
/// multiplies by int8 or int4 weights. Groups whose values are not all finite have a scale of NaN.
struct RoundedRows {
  /// The weights that they are laid out for.
  enum class Layout {
    bytes,    ///< columns of int8 weights
    nibbles,  ///< columns of int4 weights, whose groups hold their first 16 weights in the low halves of 16 bytes: the
              ///< first halves of two groups are together, then their second halves
    panels    ///< of either, many columns at a time
  };
  Layout layout = Layout::bytes;
  std::int64_t rows = 0, groups = 0;
  std::int8_t* values = nullptr;  ///< [rows, groups, 32]
  /// Compensates for weights that are multiplied as unsigned numbers, which are `unsigned_offset` too large. bytes:
  /// [rows, groups, 8], for four values each; panels: [rows, groups].
  std::int32_t* starts = nullptr;
  std::int32_t unsigned_offset = 128;
  float* scales = nullptr;        ///< [rows, groups]
  float* sums = nullptr;          ///< [rows, groups]: of the values before rounding
  float* rounded_sums = nullptr;  ///< [rows, groups]: of the rounded values, times the scale
};

}  // namespace jerboa::cpu
