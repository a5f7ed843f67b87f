#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/four_writer.h"

namespace jerboa::wgsl {

/// Whether four adjacent elements of a loop's result can be computed where they are read, by as many threads for each
/// row as it has fours: one contiguous result with rows of `length`, an element of which depends on no others of its
/// row except through sums.
bool is_computed_by_fours(const KernelSpec& loop, const Dim& length);

/// Whether an operand's rows are those of a contiguous tensor with rows of `length`: none is strided, or begins within
/// another.
bool has_rows_of(const TensorAccess& operand, const Dim& length);

/// A thread's elements of a row of such a result, by fours of adjacent ones. Everything is loaded when it is
/// constructed, without branches, and computed at the end, so that all loads are on their way at once.
class ComputedFours {
 public:
  /// `places`: WGSL expressions of the indices of the first element of each four.
  ComputedFours(Shader& shader, const KernelSpec& loop, const std::vector<std::string>& places);

  /// WGSL expressions of the elements, a vec4f for each four. `sum_of_row` turns a thread's part of a sum into that of
  /// all threads of the row.
  std::vector<std::string> finish(const std::function<std::string(const std::string&)>& sum_of_row);

 private:
  Shader& shader_;
  const KernelSpec& loop_;
  std::vector<FourWriter> fours_;
};

/// The same loop with its result rounded to the type of the memory that it would have been stored in.
KernelSpec with_rounded_result(KernelSpec loop);

}  // namespace jerboa::wgsl
