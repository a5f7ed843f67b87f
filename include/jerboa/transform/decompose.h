#pragma once

#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/ops/tensor.h>

namespace jerboa {

/// Rewrites every op whose lowering is Decompose into other ops, until none is left. Names, outputs, captures and
/// updates stay; `moved`, if given, receives the new tensor for each old one.
Graph decompose(Graph graph, std::vector<TensorId>* moved = nullptr);

/// The decomposition of one node of the traced graph, appended to it. Returns the tensors that replace its outputs.
/// `inputs` are its operands in the traced graph, empty where absent.
std::vector<Tensor> decomposition(const Node& node, const std::vector<Tensor>& inputs);

}  // namespace jerboa
