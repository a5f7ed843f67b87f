#pragma once

#include <fmt/format.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>
#include <jerboa/ir/shapes.h>

namespace jerboa::shape_rule {

/// What a shape rule sees: the operands' types (null where absent) and the attributes.
struct Call {
  Op op;
  std::span<const TensorType* const> inputs;
  const Attrs& attrs;

  const TensorType& in(std::size_t i) const { return *inputs[i]; }
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Shape& shape(std::size_t i) const { return inputs[i]->shape; }
  int rank(std::size_t i) const { return static_cast<int>(inputs[i]->shape.size()); }
  template <class A>
  const A& as() const {
    return std::get<A>(attrs);
  }
  /// Throws ShapeError "op: message".
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw ShapeError(std::string(name(op)) + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  int axis(int given, std::size_t input = 0) const;
  std::size_t uaxis(int given, std::size_t input = 0) const { return static_cast<std::size_t>(axis(given, input)); }
  /// Throws unless operand i has this rank, or at least it.
  void want_rank(std::size_t i, int wanted) const;
  void want_rank_at_least(std::size_t i, int wanted) const;
  void want_float(std::size_t i) const;
  void want_integer(std::size_t i) const;
  void want_same_dtype(std::size_t i, std::size_t j) const;
};

using Types = std::vector<TensorType>;

// One declaration for each rule that ops.def names; several ops share most of them.
#define RULE(name) Types name(const Call& call);
RULE(leaf)
RULE(const_scalar)
RULE(arange) RULE(random) RULE(unary_numeric) RULE(unary_float) RULE(unary_bool) RULE(unary_integer) RULE(cast)
    RULE(binary_numeric) RULE(binary_float) RULE(binary_bool) RULE(binary_integer) RULE(power) RULE(compare) RULE(where)
        RULE(reduce_numeric) RULE(reduce_float) RULE(argmax) RULE(all_finite) RULE(cumsum) RULE(top_k) RULE(argsort)
            RULE(reshape) RULE(transpose) RULE(swap_axes) RULE(squeeze) RULE(unsqueeze) RULE(broadcast_to)
                RULE(sum_to_shape) RULE(slice) RULE(concat) RULE(split) RULE(pad) RULE(embedding) RULE(embedding_grad)
                    RULE(take_along_axis) RULE(scatter) RULE(one_hot) RULE(matmul) RULE(matmul_grouped)
                        RULE(matmul_grouped_weight_grad) RULE(conv1d) RULE(conv2d) RULE(conv2d_input_grad)
                            RULE(conv2d_weight_grad) RULE(pool2d) RULE(max_pool2d_grad) RULE(avg_pool2d_grad)
                                RULE(axis_float) RULE(causal) RULE(norm) RULE(rope) RULE(attention) RULE(attention_grad)
                                    RULE(attention_weights) RULE(cross_entropy) RULE(adam_update) RULE(sgd_update)
                                        RULE(cache_append)
#undef RULE

}  // namespace jerboa::shape_rule
