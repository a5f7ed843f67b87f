#pragma once

#include <string>
#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa {

/// The checks that a checked graph contains.
struct Checks {
  bool finite = false;   ///< that tensors contain no NaN or infinity, by bit pattern
  bool indices = false;  ///< that indices are in range

  bool any() const { return finite || indices; }
};
/// The checks that the environment variable JERBOA_CHECK names: "finite", "indices" or both, separated by commas.
/// Throws UsageError if it names anything else.
Checks checks_from_environment();

/// The indices that one operand of an op may hold: below `limit`, and not negative unless that means "none".
struct IndexRange {
  Dim limit = 0;
  bool negative_is_none = false;
};

struct IndexOperand {
  TensorId tensor = no_tensor;
  IndexRange range;
};
/// The operands of a node that are indices into another tensor: ids of an embedding, targets of a cross-entropy, …
std::vector<IndexOperand> index_operands(const Graph& graph, const Node& node);

/// "input targets holds 77, which is out of range for cross_entropy: indices go from 0 to 2 (model.cpp:17)"
std::string out_of_range(std::int64_t value, const std::string& tensor, Op op, std::int64_t limit,
                         const std::string& site);

/// What the extra outputs of a checked graph or program say.
struct RunChecks {
  /// A tensor, and the op and the user's line that computed it.
  struct Value {
    std::string name;
    Op op = Op::add;
    std::string site;
  };
  /// Indices, and the op and the user's line that use them.
  struct Indices {
    std::string name;
    Op user = Op::embedding;
    std::string site;
    IndexRange range;
  };
  std::vector<Value> finite;     ///< in the order of execution, as the elements of the output finite_flags
  std::vector<Indices> indices;  ///< two elements of the output index_extremes for each: smallest and largest

  bool any() const { return !finite.empty() || !indices.empty(); }
};
/// A graph with checks in it. They are extra outputs that the host reads after a run; parameters and states are updated
/// only if every check passes, so that a run that fails changes nothing.
struct CheckedGraph {
  Graph graph;
  RunChecks checks;
};
inline constexpr const char* finite_flags = "check/finite";     ///< i32: 1 where a tensor is finite
inline constexpr const char* index_extremes = "check/indices";  ///< i32
/// A tensor's finite check has the tensor's name with this suffix, so that its kernel's label names the tensor.
inline constexpr const char* check_suffix = ".finite";

CheckedGraph with_checks(const Graph& graph, const Checks& checks);

}  // namespace jerboa
