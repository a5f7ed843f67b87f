#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/models/family.h>

// For hosts without random access to a checkpoint, which fetch its tensors one after another.
namespace jerboa::models {

/// The tensors that a parameter of a graph is made from.
struct ParamReads {
  std::string param;
  std::vector<std::string> tensors;  ///< of the checkpoint; all of them are needed at once
  std::int64_t rows = 0;             ///< if positive, each row can be made from the same row of the one tensor
};

/// Every parameter that is read from a checkpoint, in the graph's order, except scales and minimums, which are made
/// along with their quantised weight.
std::vector<ParamReads> param_reads(const TensorSource& weights, const Graph& graph, const Family& family);

/// Makes one parameter. `weights` needs to hold only the tensors that param_reads() lists for it.
void read_param(const TensorSource& weights, const TensorInfo& param, const Family& family,
                const std::function<void(const ParamValues& values)>& use);

/// The most common type of a checkpoint's weights.
DType usual_weights(const TensorSource& weights);

}  // namespace jerboa::models
