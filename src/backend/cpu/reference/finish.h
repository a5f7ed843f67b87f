#pragma once

#include <jerboa/backend/reference.h>

namespace jerboa::reference {

/// The evaluator, with `finish` applied once to every output of every node. Tests use it to round.
std::vector<Value> evaluate_with(const Graph& graph, const std::vector<TensorId>& keep,
                                 const std::function<Value(const TensorInfo&)>& leaf, const SymbolValues& symbols,
                                 const std::function<void(Value&)>& finish);

}  // namespace jerboa::reference
