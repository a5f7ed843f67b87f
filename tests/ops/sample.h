#pragma once

#include <map>
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

/// Where the op has a gradient, the sample has it too.
Sample sample_of(Op op, const Case& sample);

/// Everything that a device computes of a sample. Fails a test if it has the reference evaluator do any of it.
TensorMap outputs_on(const Device& device, const Sample& sample);

/// Fails a test unless this is what the reference computes in f64.
void expect_reference(const Sample& sample, const TensorMap& computed, const std::string& what,
                      const Tolerance& tolerance = {1e-4, 2e-5, 1e-4});
void expect_same_bits(const TensorMap& a, const TensorMap& b, const std::string& what);

/// The ops that engines compute: all but the leaves.
std::vector<Op> computed_ops();

}  // namespace jerboa::test
