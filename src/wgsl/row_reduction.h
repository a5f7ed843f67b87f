#pragma once

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
  /// Declares the running total. `dtype` is that of the elements.
  RowReduction(Shader& shader, Op op, DType dtype);
  /// Accumulates one element; `index` is its index in the row, for argmax.
  void add(const std::string& value, const std::string& index);
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
