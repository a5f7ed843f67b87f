#pragma once

#include <vector>

#include <jerboa/backend/reference.h>

namespace jerboa::reference {

/// The context for evaluating one node: its operands (null if absent) and its outputs, which have their types and sizes
/// and are filled with zeros.
struct Call {
  const Graph& graph;
  const Node& node;
  const SymbolValues& symbols;
  std::vector<const Value*> inputs;
  std::vector<Value>& outputs;

  const Value& in(std::size_t i) const { return *inputs[i]; }
  bool has(std::size_t i) const { return inputs[i] != nullptr; }
  Value& out(std::size_t i = 0) const { return outputs[i]; }
  template <class A>
  const A& as() const {
    return node.as<A>();
  }
  std::int64_t size(const Dim& dim) const { return dim.evaluate(symbols); }
};

/// Fills the outputs of a node. Ops with a function in scalar_ops.h need none; a row of the op table that has neither
/// does not compile.
template <Op op>
void evaluate(const Call& call) = delete;

// clang-format off
#define EVALUATION(op) template <> void evaluate<Op::op>(const Call& call);
EVALUATION(arange) EVALUATION(random)
EVALUATION(clamp) EVALUATION(gelu) EVALUATION(pow) EVALUATION(cast) EVALUATION(where)
EVALUATION(sum) EVALUATION(max) EVALUATION(min) EVALUATION(argmax) EVALUATION(all_finite) EVALUATION(sum_squares) EVALUATION(cumsum)
EVALUATION(cummax) EVALUATION(top_k) EVALUATION(argsort)
EVALUATION(reshape) EVALUATION(transpose) EVALUATION(broadcast_to) EVALUATION(slice) EVALUATION(concat) EVALUATION(pad)
EVALUATION(embedding) EVALUATION(embedding_quantised) EVALUATION(embedding_grad) EVALUATION(take_along_axis) EVALUATION(scatter)
EVALUATION(scatter_add) EVALUATION(one_hot) EVALUATION(cache_append)
EVALUATION(matmul) EVALUATION(matmul_quantised) EVALUATION(dequantise)
EVALUATION(matmul_grouped) EVALUATION(matmul_grouped_quantised) EVALUATION(matmul_grouped_weight_grad)
EVALUATION(conv2d) EVALUATION(conv2d_input_grad) EVALUATION(conv2d_weight_grad)
EVALUATION(max_pool2d) EVALUATION(max_pool2d_grad) EVALUATION(avg_pool2d) EVALUATION(avg_pool2d_grad)
EVALUATION(softmax) EVALUATION(log_softmax) EVALUATION(layer_norm) EVALUATION(rms_norm) EVALUATION(cross_entropy)
EVALUATION(rope) EVALUATION(attention) EVALUATION(attention_grad)
EVALUATION(causal_conv1d) EVALUATION(linear_attention) EVALUATION(linear_attention_grad)
#undef EVALUATION
// clang-format on

}  // namespace jerboa::reference
