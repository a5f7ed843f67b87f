#pragma once

#include <cstddef>
#include <optional>

#include <jerboa/ir/op.h>

namespace jerboa::detail {

/// The operand of an op that is an int8 or int4 weight; its scales and, if present, its minimums are the two after it.
/// No other ops take such weights.
constexpr std::optional<std::size_t> quantised_operand(Op op) {
  switch (op) {
    case Op::dequantise:
    case Op::embedding_quantised: return 0;
    case Op::matmul_quantised:
    case Op::matmul_grouped_quantised: return 1;
    default: return std::nullopt;
  }
}

}  // namespace jerboa::detail
