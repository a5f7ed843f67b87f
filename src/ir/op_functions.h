#pragma once

#include <array>
#include <utility>

#include <jerboa/ir/op.h>

namespace jerboa::detail {

/// The columns of the op table that decide which ops need a function, as constants.
struct OpColumns {
  Lowering lowering;
  Gradient gradient;
};
inline constexpr OpColumns op_columns[] = {
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) {Lowering::lowering, Gradient::gradient},
#include <jerboa/ir/ops.def>
#undef OP
};
template <Op op>
inline constexpr OpColumns columns_of = op_columns[static_cast<std::size_t>(op)];

/// A function for each op, by number: the result of `select`, which may be null. An op that needs a specialisation of a
/// deleted function template but has none does not compile, and the error names the op.
///
///   constexpr auto rules = op_functions<Rule>([]<Op op>() -> Rule {
///     if constexpr (columns_of<op>.gradient == Gradient::Rule) return &gradient<op>;
///     return nullptr;
///   });
template <class Function, class Select>
constexpr std::array<Function, op_count> op_functions(Select select) {
  return [&]<std::size_t... number>(std::index_sequence<number...>) {
    return std::array<Function, op_count>{select.template operator()<static_cast<Op>(number)>()...};
  }
  (std::make_index_sequence<op_count>());
}

}  // namespace jerboa::detail
