#pragma once

#include <string>
#include <vector>

#include <jerboa/models/family.h>

namespace jerboa::models {

/// How a checkpoint stores a parameter of a graph: tensors of equal shape that are stacked into it.
struct StoredParam {
  std::vector<std::string> names;
  Sizes shape;
  bool quantised = false;   // already, in the file
  bool transposed = false;  // the file holds […, in, out], the parameter is […, out, in]
  bool packed = false;      // the file holds -1, 0 and 1, four to a byte
  bool mxfp4 = false;       // blocks and scales of [count, out, in] in place of [count, in, out]
};

/// A parameter that is missing from the checkpoint is requested under its own name.
StoredParam stored_as(const TensorSource& weights, const Family& family, const TensorInfo& param);

/// The names that checkpoints may have for a parameter: without a prefix that all of them share, beside the towers of
/// other senses, and, in files from TensorFlow, with other names in layer norms.
std::vector<std::string> possible_names(const std::string& name, const Family& family);

/// The shape of a quantised weight's scales, and of its minimums.
Sizes shape_of_groups(Sizes weight);

/// Whether a parameter is the scales or the minimums of a quantised weight.
bool is_part_of_quantised(const TensorInfo& param);

/// Calls use(param, stored) for every parameter of a graph that is read from a file: the scales and minimums of
/// quantised ones are not.
template <class Use>
void for_each_stored(const TensorSource& weights, const Graph& graph, const Family& family, Use use) {
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param && !is_part_of_quantised(tensor))
      use(tensor, stored_as(weights, family, tensor));
}

}  // namespace jerboa::models
