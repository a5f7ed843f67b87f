#pragma once

#include <functional>
#include <string>

#include <jerboa/lower/program.h>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// Whether four adjacent elements of a loop's result can be computed where they are read, by as many threads for each
/// row as it has fours: one contiguous result with rows of `length`, an element of which depends on no others of its
/// row except through sums.
bool is_computed_by_fours(const KernelSpec& loop, const Dim& length);

/// WGSL expression of four elements of such a result, a vec4f; `place` is that of the first. `sum_of_row` turns a
/// thread's part of a sum into that of all threads of the row.
std::string compute_four(Shader& shader, const KernelSpec& loop, const std::string& place,
                         const std::function<std::string(const std::string&)>& sum_of_row);

/// The same loop with its result rounded to the type of the memory that it would have been stored in.
KernelSpec with_rounded_result(KernelSpec loop);

}  // namespace jerboa::wgsl
