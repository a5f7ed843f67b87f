#pragma once

#include <cstdint>

#include <jerboa/base/dtype.h>
#include <jerboa/ir/op.h>

namespace jerboa::cpu {

/// One instruction over a run of values in registers, which are arrays of 32-bit elements: f32, i32, u32 or booleans as
/// 0 and 1. A scalar operand is one element used for all. Arrays may be accessed up to `vector_padding` past their end.
struct VectorCall {
  void* y = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  std::int64_t count = 0;
  bool a_scalar = false, b_scalar = false, c_scalar = false;
  double number = 0, number2 = 0;
  int index = 0;
};
inline constexpr std::int64_t vector_padding = 64;

using VectorFunction = void (*)(const VectorCall&);

/// The function for an op on operands of this type; for cast, from `operand` to `result`.
VectorFunction vector_function(Op op, DType operand, DType result);

/// On f32, rounded once: a * b + c, a * b - c, or c - a * b.
enum class MulAdd : std::uint8_t { plus, minus, minus_product };
VectorFunction mul_add_function(MulAdd form);

/// The sum, maximum or minimum of no elements of this type.
float neutral_f32(Op op, DType dtype);
/// The initial value for a sum, maximum or minimum of at least one element.
float start_f32(Op op);
/// The sum, maximum or minimum of a run of f32, in an order that depends only on the count.
float reduce_f32(Op op, const float* x, std::int64_t count);
/// y[i] = op(y[i], x[i])
void accumulate_f32(Op op, float* y, const float* x, std::int64_t count);

}  // namespace jerboa::cpu
