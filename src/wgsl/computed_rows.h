#pragma once

#include <functional>
#include <string>

#include <jerboa/lower/program.h>

#include "wgsl/four_writer.h"

namespace jerboa::wgsl {

/// Whether four adjacent elements of a loop's result can be computed where they are read, by as many threads for each
/// row as it has fours: one contiguous result with rows of `length`, an element of which depends on no others of its
/// row except through sums.
bool is_computed_by_fours(const KernelSpec& loop, const Dim& length);

/// Four adjacent elements of such a result. Everything is loaded when it is constructed, without branches, and computed
/// at the end, so that all loads are on their way at once.
class ComputedFour {
 public:
  /// `place`: WGSL expression of the index of the first element.
  ComputedFour(Shader& shader, const KernelSpec& loop, const std::string& place);

  /// WGSL expression of the elements, a vec4f. `sum_of_row` turns a thread's part of a sum into that of all threads of
  /// the row.
  std::string finish(const std::function<std::string(const std::string&)>& sum_of_row);

 private:
  Shader& shader_;
  const KernelSpec& loop_;
  FourWriter four_;
};

/// The same loop with its result rounded to the type of the memory that it would have been stored in.
KernelSpec with_rounded_result(KernelSpec loop);

}  // namespace jerboa::wgsl
