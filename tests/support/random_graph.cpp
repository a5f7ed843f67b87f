#include "support/random_graph.h"

#include <fmt/format.h>

#include <jerboa/ir/shapes.h>
#include <jerboa/transform/grad.h>

namespace jerboa::test {
namespace {

// Repeated products would grow without bound.
Tensor bounded(const Tensor& x) { return 1.5 * tanh(x); }

Shape concat_shapes(Shape first, const Shape& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

Grower::Grower(unsigned seed, std::map<std::string, Value>& inputs) : engine_(seed), inputs_(inputs) {
  for (const Shape& shape : {Shape{3, 4}, Shape{4}, Shape{2, 3, 4}, Shape{T, 4}, Shape{4, 4}}) {
    const Tensor like = zeros(shape);
    pool_.push_back(weight_input(fmt::format("x{}", pool_.size()), like, inputs_));
  }
  leaves_ = pool_;
}

void Grower::grow(int steps) {
  for (int i = 0; i < steps; ++i) pool_.push_back(bounded(step()));
}

Tensor Grower::loss() {
  Tensor total = mean(pool_.back() * pool_.back());
  for (int i = 0; i < 2; ++i) total = total + sum(sin(pick()));
  return total;
}

Tensor Grower::partner_of(const Tensor& x) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    const Tensor y = pick();
    if (broadcast(x.shape(), y.shape())) return y;
  }
  return x;
}

Tensor Grower::elementwise(const Tensor& x) {
  switch (below(16)) {
    case 0: return sin(x);
    case 1: return exp(x * 0.5);
    case 2: return sigmoid(x);
    case 3: return silu(x);
    case 4: return gelu(x, below(2) == 0 ? GeluForm::none : GeluForm::tanh);
    case 5: return softplus(x);
    case 6: return sqrt(x * x + 1);
    case 7: return rsqrt(x * x + 0.5);
    case 8: return log(x * x + 1);
    case 9: return erf(x) - cos(x);
    case 10: return pow(x, 3);
    case 11: return x + partner_of(x);
    case 12: return x * partner_of(x) - expm1(x * 0.3);
    case 13: return swiglu(x, partner_of(x));
    case 14: return geglu(partner_of(x), x);
    default: {
      const Tensor y = partner_of(x);
      return x / (y * y + 1);
    }
  }
}

Tensor Grower::rearranged(const Tensor& x) {
  const int axis = axis_of(x);
  switch (below(9)) {
    case 0: return swap_axes(x, 0, -1);
    case 1: return reshape(x, {-1, x.dim(-1)});
    case 2: return slice(x, -1, 0, x.dim(-1), 2);
    case 3: return concat({x, x * 0.5, x}, axis);
    case 4: return pad(x, Shape(x.shape().size(), Dim(1)), Shape(x.shape().size(), Dim(0)), 0.5);
    case 5: return unsqueeze(x, {axis});
    case 6: return split(concat({x, x}, axis), {x.dim(axis), x.dim(axis)}, axis)[1];
    case 7: return sum_to_shape(broadcast_to(x, concat_shapes({2}, x.shape())), x.shape()) * 0.4;
    default: return where(arange(x.dim(-1)) < 2, x, sin(x));
  }
}

Tensor Grower::reduced(const Tensor& x) {
  const int axis = axis_of(x);
  switch (below(6)) {
    case 0: return sum(x, {axis}, true);
    case 1: return mean(x, {axis}, x.rank() < 3);
    case 2: return cumsum(x, axis, below(2) == 0) * 0.3;
    case 3: return softmax(x, axis);
    case 4: return log_softmax(x, axis);
    default: return below(2) == 0 ? layer_norm(x, {}, {}, 0.1) : rms_norm(x, {}, 0.1);
  }
}

// Only ops that can be differentiated twice.
Tensor Grower::multiplied(const Tensor& given) {
  const Tensor x = given.rank() < 2 ? unsqueeze(given, {0}) : given;
  switch (below(6)) {
    case 0: return matmul(x, x, {.transpose_b = true}) * 0.3;
    case 1: return matmul(x, x, {.transpose_a = true}) * 0.3;
    case 2: return causal_softmax(matmul(x, x, {.transpose_b = true}));
    case 3: {
      const Tensor rows = reshape(x, {-1, x.dim(-1)});
      return embedding(concat({rows, sin(rows)}, 0), constant(HostTensor({3}, std::vector<std::int32_t>{1, 0, 1})));
    }
    case 4: {
      const Tensor tokens = reshape(x, {1, -1, x.dim(-1)});
      const Tensor taps = constant(HostTensor({3}, std::vector<float>{0.5F, -0.3F, 0.8F}));
      const Tensor weight = unsqueeze(mean(tokens, {0, 1}), {1}) * taps;
      return causal_conv1d(tokens, weight).y;
    }
    default: {
      const Tensor heads = reshape(x, {1, 1, -1, x.dim(-1)});
      return attention(heads, heads, sin(heads), {.causal = below(2) == 0, .scale = 0.7});
    }
  }
}

Tensor Grower::step() {
  // Large tensors stop growing: they are reduced first.
  Tensor x = pick();
  if (element_count(x.shape()).upper_bound() > 300 || x.rank() > 4) x = mean(x, {0});
  if (x.rank() == 0) x = reshape(x, {1});
  switch (below(5)) {
    case 0: return rearranged(x);
    case 1: return reduced(x);
    case 2: return multiplied(x);
    default: return elementwise(x);
  }
}

Differentiated random_graph(unsigned seed, int steps) {
  Differentiated it;
  it.graph = trace([&] {
    Grower grower(seed, it.inputs);
    grower.grow(steps);
    const Tensor loss = grower.loss().named("loss");
    output("loss", loss);
    it.loss = loss.id();
    it.wrt = ids(grower.leaves());
    it.grads = ids(grad(loss, grower.leaves()));
    for (std::size_t i = 0; i < it.grads.size(); ++i)
      output(fmt::format("grad{}", i), Tensor(current_graph("test").identity(), it.grads[i]));
  });
  return it;
}

}  // namespace jerboa::test
