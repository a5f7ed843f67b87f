#pragma once

#include <string>
#include <vector>

#include <jerboa/runtime/session.h>
#include <jerboa/transform/checks.h>

namespace jerboa::detail {

/// An input whose elements, all or some of them, are indices into another tensor.
struct InputIndices {
  /// One op on the way from the input to the op that takes the indices.
  struct Move {
    Node node;
    Shape operand;
    std::size_t output = 0;
  };
  std::string input;
  std::vector<Move> moves;
  IndexRange range;
  Op user = Op::embedding;
  std::string site;
};

std::vector<InputIndices> find_input_indices(const Graph& graph);

/// Throws UsageError that names the input, the value, the bound and the user's line, before anything runs. On a GPU an
/// index out of range would silently read another element.
void check_input_indices(const std::vector<InputIndices>& indices, const TensorMap& inputs,
                         const SymbolValues& symbols);

}  // namespace jerboa::detail
