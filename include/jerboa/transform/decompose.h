#pragma once

#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/ops/tensor.h>

namespace jerboa {

/// Rewrites every op whose row says Decompose into others, until none is left. Names, outputs, captures and updates
/// stay; `moved`, where given, tells the new tensor for each old one.
Graph decompose(const Graph& graph, std::vector<TensorId>* moved = nullptr);

/// The decomposition of one node of the traced graph, appended to it: the tensors that stand for its outputs.
/// `inputs` are its operands there, empty where absent.
std::vector<Tensor> decomposition(const Node& node, const std::vector<Tensor>& inputs);

}  // namespace jerboa
