#include "lower/cost.h"

namespace jerboa::detail {
namespace {

const Shape& shape(const KernelSpec& kernel, std::size_t operand) { return kernel.operands[operand].shape; }

Dim scores(const Shape& q, const Shape& k, bool causal) {
  const Dim all = q[0] * q[1] * q[2] * k[2];
  return causal && q[2] == k[2] ? floor_divide(all, 2) : all;
}

Dim attention(const KernelSpec& kernel) {
  const Dim count = scores(shape(kernel, 0), shape(kernel, 1), std::get<AttentionAttrs>(kernel.attrs).causal);
  return Dim(2) * count * (shape(kernel, 0)[3] + kernel.results[0].shape[3]);
}

Dim attention_grad(const KernelSpec& kernel) {
  const Dim count = scores(shape(kernel, 0), shape(kernel, 1), std::get<AttentionGradAttrs>(kernel.attrs).causal);
  return Dim(2) * count * (Dim(3) * shape(kernel, 0)[3] + Dim(2) * shape(kernel, 2)[3]);
}

// A weight [out, in / groups, height, width] is applied at each of the positions [height, width] of [batch, out, …].
Dim convolution(const Shape& positions, const Shape& weight) {
  return Dim(2) * positions[0] * positions[2] * positions[3] * element_count(weight);
}

// Per token, on the state: the update, the product with q and, for the delta rule, the one with k. The gradient also
// needs the states and their gradients, and the same amount again for q and k.
Dim linear_attention(const KernelSpec& kernel, int times) {
  const int products = kernel.operands[5].binding >= 0 ? 3 : 2;
  return Dim(std::int64_t{2} * products * times) * element_count(shape(kernel, 3)) * shape(kernel, 2)[3];
}

}  // namespace

Dim operations_of(const KernelSpec& kernel) {
  if (kernel.kind == KernelSpec::Kind::matmul)
    return Dim(2) * element_count(kernel.domain) * kernel.operands[0].shape.back();
  if (kernel.kind != KernelSpec::Kind::whole) return 0;
  switch (kernel.op) {
    case Op::attention: return attention(kernel);
    case Op::attention_grad: return attention_grad(kernel);
    case Op::linear_attention: return linear_attention(kernel, 1);
    case Op::linear_attention_grad: return linear_attention(kernel, 3);
    case Op::matmul_grouped:
    case Op::matmul_grouped_quantised: return Dim(2) * element_count(kernel.results[0].shape) * shape(kernel, 0).back();
    case Op::matmul_grouped_weight_grad: return Dim(2) * element_count(shape(kernel, 0)) * shape(kernel, 1).back();
    case Op::conv2d: return convolution(kernel.results[0].shape, shape(kernel, 1));
    case Op::conv2d_input_grad: return convolution(shape(kernel, 0), shape(kernel, 1));
    case Op::conv2d_weight_grad: return convolution(shape(kernel, 1), kernel.results[0].shape);
    default: return 0;
  }
}

}  // namespace jerboa::detail
