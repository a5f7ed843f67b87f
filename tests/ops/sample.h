#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/runtime/device.h>
#include <jerboa/runtime/session.h>

#include "ops/case.h"
#include "ops/gradient_check.h"
#include "verify/compare.h"

namespace jerboa::test {

/// A case of an op as a graph with everything that it computes as outputs, gradients included, and its inputs.
struct Sample {
  Graph graph;
  std::map<std::string, Value> inputs;
};

/// With the gradients as the outputs grad0, grad1, …
Sample with_gradients(const Differentiated& differentiated);

/// The case with its gradient, if the op has one.
Sample sample_of(Op op, const Case& sample);

/// The outputs of the op alone, as out0, out1, …, with floats of the given type.
Sample forward_sample_of(Op op, const Case& sample, DType floats);
/// The outputs of the op that have a gradient, and the gradients; nothing where there are none.
std::optional<Sample> gradient_sample_of(Op op, const Case& sample, DType floats);

/// Everything that a device computes for a sample. Fails a test if the reference evaluator did any of it.
TensorMap outputs_on(const Device& device, const Sample& sample);

/// The sample's outputs from the reference, with `finish` applied to each tensor.
std::vector<Value> reference_outputs(const Sample& sample, const std::function<void(Value&)>& finish);

/// Fails a test unless this is what the reference computes in f64.
void expect_reference(const Sample& sample, const TensorMap& computed, const std::string& what,
                      const Tolerance& tolerance = {1e-4, 2e-5, 1e-4});
void expect_same_bits(const TensorMap& a, const TensorMap& b, const std::string& what);

/// The ops that engines compute: all except leaves.
std::vector<Op> computed_ops();

}  // namespace jerboa::test
