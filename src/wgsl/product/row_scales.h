#pragma once

#include <string>

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

/// Powers of two, one for each row of a product's first operand, that bring the row's largest magnitude to just below
/// 2^15: a shader finds them, and the next multiplies rows of f32 as f16 without leaving its range. Magnitudes below
/// 2^-29 of the row's largest may be lost, which is less than rounding takes from the largest.
class RowScales {
 public:
  /// Adds the shader that finds them. The operand's rows are read in fours along the inner dimension.
  RowScales(KernelWriter& writer, const MatmulProblem& problem);
  /// WGSL expressions of a row's scale, and of its inverse.
  std::string scale(Shader& shader, const std::string& row) const;
  std::string inverse(Shader& shader, const std::string& row) const;

 private:
  int memory_;
};

}  // namespace jerboa::wgsl
