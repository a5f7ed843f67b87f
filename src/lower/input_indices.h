#pragma once

#include <vector>

#include <jerboa/lower/program_file.h>

namespace jerboa::detail {

/// The inputs of a graph whose elements reach an op as indices, unchanged: moved, or cast to another integer type.
std::vector<InputIndices> find_input_indices(const Graph& graph);

/// Checks that the views stay inside an input of this many elements, for these values of the symbols. Throws GraphError
/// or ShapeError.
void verify_views(const InputIndices& indices, std::int64_t elements, const SymbolValues& symbols);
/// Checks that the indices of an entry are integers of its inputs, and their views at both ends of the symbols' ranges.
void verify_input_indices(const ProgramEntry& entry);

}  // namespace jerboa::detail
