#pragma once

#include <jerboa/compile/graphs.h>

namespace jerboa {

/// The graph of a training step for a loss that has been traced: the output "loss" of a graph in training mode. See the
/// function of this name that traces it.
Graph training_graph(const Graph& traced, const Optimizer& optimizer, const CallSite& site = {},
                     const PrecisionOptions& precision = {});

}  // namespace jerboa
