#pragma once

#include <string>
#include <vector>

#include <jerboa/models/family.h>

namespace jerboa::models {

/// How a checkpoint stores a parameter of a graph: one tensor, or several of equal shape that are stacked.
struct StoredParam {
  std::vector<std::string> names;
  Sizes shape;
  bool quantised = false;   // it is quantised in the file
  bool transposed = false;  // the file has […, in, out], the parameter […, out, in]
  bool packed = false;      // the file packs -1, 0 and 1 four to a byte
  bool mxfp4 = false;       // blocks and scales of [count, out, in] in place of [count, in, out]
};

/// For a parameter that is missing from the checkpoint, names[0] is the parameter's own name.
StoredParam stored_as(const TensorSource& weights, const Family& family, const TensorInfo& param);

/// The names that a parameter may have in checkpoints: with or without a prefix that all parameters share, beside the
/// towers of a multimodal model, and with TensorFlow's names of layer norms.
std::vector<std::string> possible_names(const std::string& name, const Family& family);

/// The shape of a quantised weight's scales, and of its minimums.
Sizes shape_of_groups(Sizes weight);

/// Whether a parameter holds the scales or minimums of a quantised weight.
bool is_part_of_quantised(const TensorInfo& param);

/// Calls use(param, stored) for every parameter of a graph that is read from a file, which scales and minimums of
/// quantised weights are not.
template <class Use>
void for_each_stored(const TensorSource& weights, const Graph& graph, const Family& family, Use use) {
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param && !is_part_of_quantised(tensor))
      use(tensor, stored_as(weights, family, tensor));
}

}  // namespace jerboa::models
