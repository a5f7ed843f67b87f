#pragma once

#include <jerboa/ir/op.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// The shaders of an op on whole tensors. Each op needs a specialisation; a missing one is a compile error that names
/// it.
template <Op op>
void write_whole_op(KernelWriter& writer) = delete;

template <>
void write_whole_op<Op::attention>(KernelWriter& writer);
template <>
void write_whole_op<Op::attention_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::causal_conv1d>(KernelWriter& writer);
template <>
void write_whole_op<Op::linear_attention>(KernelWriter& writer);
template <>
void write_whole_op<Op::linear_attention_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::conv2d>(KernelWriter& writer);
template <>
void write_whole_op<Op::conv2d_input_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::conv2d_weight_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::max_pool2d>(KernelWriter& writer);
template <>
void write_whole_op<Op::max_pool2d_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::avg_pool2d>(KernelWriter& writer);
template <>
void write_whole_op<Op::avg_pool2d_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::dequantise>(KernelWriter& writer);
template <>
void write_whole_op<Op::embedding_quantised>(KernelWriter& writer);
template <>
void write_whole_op<Op::sum_squares>(KernelWriter& writer);
template <>
void write_whole_op<Op::cumsum>(KernelWriter& writer);
template <>
void write_whole_op<Op::cummax>(KernelWriter& writer);
template <>
void write_whole_op<Op::top_k>(KernelWriter& writer);
template <>
void write_whole_op<Op::argsort>(KernelWriter& writer);
template <>
void write_whole_op<Op::embedding_grad>(KernelWriter& writer);
template <>
void write_whole_op<Op::scatter>(KernelWriter& writer);
template <>
void write_whole_op<Op::scatter_add>(KernelWriter& writer);
template <>
void write_whole_op<Op::cache_append>(KernelWriter& writer);
template <>
void write_whole_op<Op::matmul_grouped>(KernelWriter& writer);
template <>
void write_whole_op<Op::matmul_grouped_quantised>(KernelWriter& writer);
template <>
void write_whole_op<Op::matmul_grouped_weight_grad>(KernelWriter& writer);

}  // namespace jerboa::wgsl
