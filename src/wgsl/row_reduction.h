#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <jerboa/lower/program.h>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// A power-of-two thread count that suits rows of this many elements.
int lanes_for(std::int64_t elements, const Target& target);

/// A reduction shared by the threads of a row: each accumulates its elements, then the partial results are combined as
/// a tree, in an order that does not change from run to run.
class RowReduction {
 public:
  /// Declares the running total. `dtype` is that of the elements. `width` 4: four rows at once, as a vec4f; only for
  /// floats and ops that fold.
  RowReduction(Shader& shader, Op op, DType dtype, int width = 1);
  /// Accumulates one element; `index` is its index in the row, for argmax.
  void add(const std::string& value, const std::string& index);
  /// Accumulates a partial result of the same reduction.
  void combine_with(const std::string& part);
  /// Accumulates four adjacent elements, from this index on.
  void add_four(const std::array<std::string, 4>& values, const std::string& first);
  /// The result, known to all threads of the row. `lanes` threads share a row, `lane` is the thread's index among
  /// them, `threads` the workgroup size. The threads of a row are `stride` apart.
  std::string finish(int lanes, const std::string& lane, int threads, int stride = 1);

 private:
  bool can_use_subgroups(int lanes, int stride) const;
  std::string finish_by_subgroups(int lanes, int threads);

  Shader& shader_;
  Op op_;
  DType dtype_;
  std::string type_, total_, index_;
};

}  // namespace jerboa::wgsl
