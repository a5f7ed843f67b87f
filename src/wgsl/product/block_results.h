#pragma once

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

/// Products in the form for software drivers: each thread computes a block of some rows and four columns directly from
/// memory, since such drivers have no faster memory. They load the values of a subgroup's threads one by one, which
/// takes several times as long as multiplying them. The threads of a subgroup therefore share rows, where it pays, and
/// each loads a part of the rows for all of them.
class BlockResults {
 public:
  static constexpr int rows = 8, columns = 4;  ///< per thread

  BlockResults(Shader& shader, const KernelSpec& kernel, const MatmulProblem& problem);

  /// How many threads share rows; 1: each loads its own.
  int lanes() const { return lanes_; }
  bool are_shared() const { return lanes_ > 1; }

  /// Declares `row`, `column` and `batch` of this thread's first result, `row_0` … and `column_0` …, clamped to the
  /// last one, and `sum_0` …, a vec4f per row; returns the number of workgroups.
  Dim write_place();
  /// Finishes the sums of this thread's results.
  void write_results();

 private:
  Shader& shader_;
  const MatmulProblem& problem_;
  int lanes_;
  bool in_fours_;
};

}  // namespace jerboa::wgsl
