#pragma once

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// An int8 or int4 weight, whole and in row-major order, whose elements a shader reads one by one.
struct QuantisedWeight {
  const TensorAccess& weight;
  const TensorAccess& scales;
  const TensorAccess& mins;  ///< without a binding: none

  /// The weight at operand `first` of a kernel, which scales and minimums follow.
  QuantisedWeight(const KernelSpec& kernel, std::size_t first)
      : weight(kernel.operands[first]), scales(kernel.operands[first + 1]), mins(kernel.operands[first + 2]) {}

  /// WGSL expression of the value of an element; `index` must be a name.
  std::string value(Shader& shader, const std::string& index) const;
};

}  // namespace jerboa::wgsl
