#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/case.h"

namespace jerboa::test {

/// A scalar of a graph with its gradients with respect to some inputs, and the point at which to evaluate them.
struct Differentiated {
  Graph graph;
  TensorId loss = no_tensor;
  std::vector<TensorId> wrt, grads;
  std::vector<TensorId> outputs;  ///< of the op, those that take part in the scalar
  std::map<std::string, Value> inputs;
};

struct Mismatch {
  std::string input;
  std::string message;
};

std::vector<TensorId> ids(const std::vector<Tensor>& tensors);

/// Compares the gradients with central differences of the scalar in f64, along single elements and along random
/// directions; returns what differs.
std::vector<Mismatch> check_gradient(const Differentiated& it);

/// sum(w · out) over the outputs of a case, w being fixed random numbers, with its gradients with respect to the float
/// operands. Nothing for a case that has no float operand or no float output.
std::optional<Differentiated> first_order(Op op, const Case& sample, DType floats = DType::f32);

/// sum(v · g) over those gradients, with its own gradients for the operands and for w.
std::optional<Differentiated> second_order(Op op, const Case& sample);

}  // namespace jerboa::test
