#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/four_writer.h"

namespace jerboa::wgsl {

/// Whether four adjacent elements of a loop's result can be computed where they are read, with one thread per four
/// elements of a row. The loop must have one contiguous result with rows of `length`, whose elements depend on others
/// of their row only through sums.
bool is_computed_by_fours(const KernelSpec& loop, const Dim& length);

/// Whether an operand's rows are those of a contiguous tensor with rows of `length`: none is strided, or begins within
/// another.
bool has_rows_of(const TensorAccess& operand, const Dim& length);

/// A thread's elements of a row of such a result, in groups of four adjacent ones. The constructor issues all loads,
/// without branches, so that they are in flight together; finish() computes.
class ComputedFours {
 public:
  /// `places`: WGSL expressions of the indices of each group's first element.
  ComputedFours(Shader& shader, const KernelSpec& loop, const std::vector<std::string>& places);

  /// WGSL expressions of the elements, a vec4f per group. `sum_of_row` turns a thread's part of a sum into that of all
  /// threads of the row.
  std::vector<std::string> finish(const std::function<std::string(const std::string&)>& sum_of_row);

 private:
  Shader& shader_;
  const KernelSpec& loop_;
  std::vector<FourWriter> fours_;
};

/// The same loop with its result rounded to the type of the memory that it would have been stored in.
KernelSpec with_rounded_result(KernelSpec loop);

}  // namespace jerboa::wgsl
