#pragma once

#include <type_traits>

#include <jerboa/base/error.h>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"
#include "backend/cpu/reference/scalar_ops.h"

namespace jerboa::reference {

/// out = f(x) or f(a, b) with elements of type T, broadcasting.
template <Element T, class F>
void map_as(const Call& call, F f) {
  Value& out = call.out();
  const Value& a = call.in(0);
  if constexpr (std::is_invocable_v<F, T>) {
    for (std::size_t i = 0; i < out.data.size(); ++i) out.data[i] = static_cast<double>(f(static_cast<T>(a.data[i])));
  } else {
    const Value& b = call.in(1);
    const Sizes a_strides = broadcast_strides(a.shape, out.shape), b_strides = broadcast_strides(b.shape, out.shape);
    std::size_t next = 0;
    for_each_index(out.shape, [&](const Sizes& index) {
      const auto x = static_cast<T>(a.data[offset_of(index, a_strides)]);
      const auto y = static_cast<T>(b.data[offset_of(index, b_strides)]);
      out.data[next++] = static_cast<double>(f(x, y));
    });
  }
}

/// The same in the element type of the first operand.
template <class F>
void map(const Call& call, F f) {
  const auto as = [&]<class T>(T) {
    if constexpr (std::is_invocable_v<F, T> || std::is_invocable_v<F, T, T>)
      map_as<T>(call, f);
    else
      throw UsageError("reference: " + std::string(name(call.node.op)) + " of " + std::string(name(call.in(0).dtype)));
  };
  const DType dtype = call.in(0).dtype;
  if (is_float(dtype)) return as(double{});
  if (dtype == DType::i32) return as(std::int32_t{});
  if (dtype == DType::u32) return as(std::uint32_t{});
  return as(bool{});
}

}  // namespace jerboa::reference
