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

/// The arguments of a shape rule: the operands' types (null if absent) and the attributes.
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
  /// Throws unless operand i has this rank, or at least this rank.
  void want_rank(std::size_t i, int wanted) const;
  void want_rank_at_least(std::size_t i, int wanted) const;
  /// Throws unless operand i is absent or has this shape.
  void want_shape(std::size_t i, const Shape& wanted) const;
  void want_float(std::size_t i) const;
  void want_integer(std::size_t i) const;
  void want_same_dtype(std::size_t i, std::size_t j) const;
};

using Types = std::vector<TensorType>;

// A declaration for each rule that ops.def names; most are shared by several ops.
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) Types rule(const Call& call);
#include <jerboa/ir/ops.def>
#undef OP

}  // namespace jerboa::shape_rule
