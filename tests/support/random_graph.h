#pragma once

#include <random>

#include "ops/gradient_check.h"

namespace jerboa::test {

/// Grows a graph by ops drawn at random, which are smooth and keep values near 1.
class Grower {
 public:
  Grower(unsigned seed, std::map<std::string, Value>& inputs);

  void grow(int steps);
  const std::vector<Tensor>& leaves() const { return leaves_; }
  /// A scalar that depends on the latest tensor and on one or two earlier ones.
  Tensor loss();

 private:
  std::size_t below(std::size_t count) { return engine_() % count; }
  Tensor pick() { return pool_[below(pool_.size())]; }
  int axis_of(const Tensor& x) { return static_cast<int>(below(static_cast<std::size_t>(x.rank()))); }

  Tensor partner_of(const Tensor& x);
  Tensor elementwise(const Tensor& x);
  Tensor rearranged(const Tensor& x);
  Tensor reduced(const Tensor& x);
  Tensor multiplied(const Tensor& given);
  Tensor step();

  std::mt19937 engine_;
  std::map<std::string, Value>& inputs_;
  std::vector<Tensor> pool_, leaves_;
};

/// A graph of `steps` random ops with the outputs "loss" and "grad0", "grad1", …: the gradients for its inputs.
Differentiated random_graph(unsigned seed, int steps);

}  // namespace jerboa::test
