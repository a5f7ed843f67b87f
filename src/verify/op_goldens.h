#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <jerboa/io/safetensors.h>
#include <jerboa/ir/graph.h>

#include "verify/compare.h"

namespace jerboa {

/// The interface to an engine: computes the values of some tensors of a graph, given its inputs by name.
using EvaluateGraph = std::function<std::vector<HostTensor>(const Graph& graph, const std::vector<TensorId>& keep,
                                                            const std::map<std::string, HostTensor>& inputs)>;

/// The reference evaluator in f32.
std::vector<HostTensor> evaluate_on_reference(const Graph& graph, const std::vector<TensorId>& keep,
                                              const std::map<std::string, HostTensor>& inputs);

struct CaseReport {
  std::string name;
  bool ok = false;
  std::string message;  ///< what is wrong; empty if the case passes
};

/// Runs every case of an op-golden file, forward and backward. The file's metadata says `cases`, as JSON {NAME: {"op":
/// …, "attrs": {…}}}; its tensors are NAME/in0…, NAME/int0…, NAME/out (and NAME/out1… of an op with several results),
/// NAME/cotangent and NAME/grad0… A case fails if it has an unknown op or attribute, lacks tensors that it needs (all
/// results and, if the op has a gradient, a cotangent and the gradient of every float operand), has an unused tensor or
/// a cotangent of zeros, or compares no elements. Throws FileError
/// for a file that has no cases.
std::vector<CaseReport> verify_op_goldens(const SafeTensors& file, const EvaluateGraph& evaluate,
                                          const Tolerance& tolerance = {});

}  // namespace jerboa
