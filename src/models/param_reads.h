#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/models/family.h>

// Weights for hosts that cannot read a checkpoint as they please, but fetch its tensors one after another.
namespace jerboa::models {

/// What a parameter of a graph is made from.
struct ParamReads {
  std::string param;
  std::vector<std::string> tensors;  ///< of the checkpoint, all of which are needed at once
  std::int64_t rows = 0;             ///< if positive, any of its rows can be made from the same rows of the one tensor
};

/// Every parameter that is read from a checkpoint, in the graph's order: the scales and minimums of quantised weights
/// come with these.
std::vector<ParamReads> param_reads(const TensorSource& weights, const Graph& graph, const Family& family);

/// Makes one parameter, for which `weights` needs to hold only what param_reads() lists.
void read_param(const TensorSource& weights, const TensorInfo& param, const Family& family,
                const std::function<void(const ParamValues& values)>& use);

/// The type that most of a checkpoint's weights are in.
DType usual_weights(const TensorSource& weights);

}  // namespace jerboa::models
