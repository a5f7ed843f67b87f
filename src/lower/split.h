#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The same graph, with concatenations of more tensors than a kernel can bind split into nested concatenations.
Graph split_concats(Graph graph, const Target& target);

}  // namespace jerboa::detail
