// Element-wise f32 ops and reductions on SIMD registers, compiled once for each instruction set and chosen at run time.
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/vector_ops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "backend/cpu/math-inl.h"
#include "backend/cpu/vector_ops.h"
#include "base/value_range.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using I = hn::RebindToSigned<D>;

std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

template <class F>
void unary(const VectorCall& call, F f) {
  const D d;
  const auto* a = static_cast<const float*>(call.a);
  auto* y = static_cast<float*>(call.y);
  for (std::int64_t i = 0; i < call.count; i += lanes()) hn::StoreU(f(d, hn::LoadU(d, a + i)), d, y + i);
}

template <class F>
void binary(const VectorCall& call, F f) {
  const D d;
  const auto* a = static_cast<const float*>(call.a);
  const auto* b = static_cast<const float*>(call.b);
  auto* y = static_cast<float*>(call.y);
  if (call.a_scalar) {
    const V first = hn::Set(d, *a);
    for (std::int64_t i = 0; i < call.count; i += lanes()) hn::StoreU(f(d, first, hn::LoadU(d, b + i)), d, y + i);
  } else if (call.b_scalar) {
    const V second = hn::Set(d, *b);
    for (std::int64_t i = 0; i < call.count; i += lanes()) hn::StoreU(f(d, hn::LoadU(d, a + i), second), d, y + i);
  } else {
    for (std::int64_t i = 0; i < call.count; i += lanes())
      hn::StoreU(f(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  }
}

// Scalar operands are distinguished outside the loop.
template <class F, class A, class B, class C>
void ternary_loop(const VectorCall& call, F f, A a, B b, C c) {
  const D d;
  auto* y = static_cast<float*>(call.y);
  for (std::int64_t i = 0; i < call.count; i += lanes()) hn::StoreU(f(a(d, i), b(d, i), c(d, i)), d, y + i);
}

template <class F>
void ternary(const VectorCall& call, F f) {
  const D d;
  const auto* pa = static_cast<const float*>(call.a);
  const auto* pb = static_cast<const float*>(call.b);
  const auto* pc = static_cast<const float*>(call.c);
  const auto from = [](const float* x)
                        HWY_ATTR { return [x](D tag, std::int64_t i) HWY_ATTR { return hn::LoadU(tag, x + i); }; };
  const V va = hn::Set(d, *pa), vb = hn::Set(d, *pb), vc = hn::Set(d, *pc);
  const auto same_a = [va](D, std::int64_t) HWY_ATTR { return va; };
  const auto same_b = [vb](D, std::int64_t) HWY_ATTR { return vb; };
  const auto same_c = [vc](D, std::int64_t) HWY_ATTR { return vc; };
  switch ((call.a_scalar ? 4 : 0) + (call.b_scalar ? 2 : 0) + (call.c_scalar ? 1 : 0)) {
    case 0: return ternary_loop(call, f, from(pa), from(pb), from(pc));
    case 1: return ternary_loop(call, f, from(pa), from(pb), same_c);
    case 2: return ternary_loop(call, f, from(pa), same_b, from(pc));
    case 3: return ternary_loop(call, f, from(pa), same_b, same_c);
    case 4: return ternary_loop(call, f, same_a, from(pb), from(pc));
    case 5: return ternary_loop(call, f, same_a, from(pb), same_c);
    case 6: return ternary_loop(call, f, same_a, same_b, from(pc));
    default: return ternary_loop(call, f, same_a, same_b, same_c);
  }
}

template <class F>
void compare(const VectorCall& call, F f) {
  const D d;
  const I integers;
  const auto* a = static_cast<const float*>(call.a);
  const auto* b = static_cast<const float*>(call.b);
  auto* y = static_cast<std::int32_t*>(call.y);
  const auto one = hn::Set(integers, 1);
  for (std::int64_t i = 0; i < call.count; i += lanes()) {
    const V first = call.a_scalar ? hn::Set(d, *a) : hn::LoadU(d, a + i);
    const V second = call.b_scalar ? hn::Set(d, *b) : hn::LoadU(d, b + i);
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(integers, f(first, second)), one), integers, y + i);
  }
}

void select(const VectorCall& call) {
  const D d;
  const I integers;
  const auto* condition = static_cast<const std::int32_t*>(call.a);
  const auto* b = static_cast<const float*>(call.b);
  const auto* c = static_cast<const float*>(call.c);
  auto* y = static_cast<float*>(call.y);
  for (std::int64_t i = 0; i < call.count; i += lanes()) {
    const auto flags = call.a_scalar ? hn::Set(integers, *condition) : hn::LoadU(integers, condition + i);
    const V yes = call.b_scalar ? hn::Set(d, *b) : hn::LoadU(d, b + i);
    const V no = call.c_scalar ? hn::Set(d, *c) : hn::LoadU(d, c + i);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(d, hn::Ne(flags, hn::Zero(integers))), yes, no), d, y + i);
  }
}

// Integer exponents by squaring, so that a negative base is allowed.
V whole_power(D d, V x, int exponent) {
  V result = hn::Set(d, 1.0f), power = x;
  for (int rest = exponent < 0 ? -exponent : exponent; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result = hn::Mul(result, power);
    power = hn::Mul(power, power);
  }
  return exponent < 0 ? hn::Div(hn::Set(d, 1.0f), result) : result;
}

void f_neg(const VectorCall& v) {
  unary(v, [](D, V x) HWY_ATTR { return hn::Neg(x); });
}
void f_abs(const VectorCall& v) {
  unary(v, [](D, V x) HWY_ATTR { return hn::Abs(x); });
}
void f_sqrt(const VectorCall& v) {
  unary(v, [](D, V x) HWY_ATTR { return hn::Sqrt(x); });
}
void f_rsqrt(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); });
}
void f_log(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::log(d, x); });
}
void f_exp(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::exp(d, x); });
}
void f_expm1(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::expm1(d, x); });
}
void f_sin(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::sin(d, x); });
}
void f_cos(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::cos(d, x); });
}
void f_tanh(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::tanh(d, x); });
}
void f_sigmoid(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::sigmoid(d, x); });
}
void f_erf(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::erf(d, x); });
}
void f_relu(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::relu(d, x); });
}
void f_silu(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::silu(d, x); });
}
void f_softplus(const VectorCall& v) {
  unary(v, [](D d, V x) HWY_ATTR { return ieee::softplus(d, x); });
}
void f_floor(const VectorCall& v) {
  unary(v, [](D, V x) HWY_ATTR { return hn::Floor(x); });
}
void f_round(const VectorCall& v) {
  unary(v, [](D, V x) HWY_ATTR { return hn::Round(x); });
}
void f_gelu(const VectorCall& v) {
  if (v.index == static_cast<int>(GeluForm::tanh))
    unary(v, [](D d, V x) HWY_ATTR { return ieee::gelu_tanh(d, x); });
  else
    unary(v, [](D d, V x) HWY_ATTR { return ieee::gelu_exact(d, x); });
}
void f_clamp(const VectorCall& v) {
  const auto low = static_cast<float>(v.number), high = static_cast<float>(v.number2);
  unary(v, [low, high](D d, V x) HWY_ATTR { return ieee::clamp(d, x, low, high); });
}
void f_whole_power(const VectorCall& v) {
  const int exponent = static_cast<int>(v.number);
  unary(v, [exponent](D d, V x) HWY_ATTR { return whole_power(d, x, exponent); });
}

void f_add(const VectorCall& v) {
  binary(v, [](D, V a, V b) HWY_ATTR { return hn::Add(a, b); });
}
void f_sub(const VectorCall& v) {
  binary(v, [](D, V a, V b) HWY_ATTR { return hn::Sub(a, b); });
}
void f_mul(const VectorCall& v) {
  binary(v, [](D, V a, V b) HWY_ATTR { return hn::Mul(a, b); });
}
void f_div(const VectorCall& v) {
  binary(v, [](D, V a, V b) HWY_ATTR { return hn::Div(a, b); });
}
void f_maximum(const VectorCall& v) {
  binary(v, [](D, V a, V b) HWY_ATTR { return ieee::maximum(a, b); });
}
void f_minimum(const VectorCall& v) {
  binary(v, [](D, V a, V b) HWY_ATTR { return ieee::minimum(a, b); });
}

void f_mul_plus(const VectorCall& v) {
  ternary(v, [](V a, V b, V c) HWY_ATTR { return hn::MulAdd(a, b, c); });
}
void f_mul_minus(const VectorCall& v) {
  ternary(v, [](V a, V b, V c) HWY_ATTR { return hn::MulSub(a, b, c); });
}
void f_minus_mul(const VectorCall& v) {
  ternary(v, [](V a, V b, V c) HWY_ATTR { return hn::NegMulAdd(a, b, c); });
}

void f_equal(const VectorCall& v) {
  compare(v, [](V a, V b) HWY_ATTR { return hn::Eq(a, b); });
}
void f_not_equal(const VectorCall& v) {
  compare(v, [](V a, V b) HWY_ATTR { return ieee::differ(a, b); });
}
void f_less(const VectorCall& v) {
  compare(v, [](V a, V b) HWY_ATTR { return hn::Lt(a, b); });
}
void f_less_equal(const VectorCall& v) {
  compare(v, [](V a, V b) HWY_ATTR { return hn::Le(a, b); });
}
void f_greater(const VectorCall& v) {
  compare(v, [](V a, V b) HWY_ATTR { return hn::Gt(a, b); });
}
void f_greater_equal(const VectorCall& v) {
  compare(v, [](V a, V b) HWY_ATTR { return hn::Ge(a, b); });
}

// Four accumulators, then the lanes, then the tail: an order that depends only on the count.
template <class F, class Across>
float fold(const float* x, std::int64_t count, float neutral, F f, Across across) {
  const D d;
  const std::int64_t n = lanes();
  V totals[4] = {hn::Set(d, neutral), hn::Set(d, neutral), hn::Set(d, neutral), hn::Set(d, neutral)};
  std::int64_t i = 0;
  for (; i + 4 * n <= count; i += 4 * n)
    for (int k = 0; k < 4; ++k) totals[k] = f(totals[k], hn::LoadU(d, x + i + k * n));
  for (; i + n <= count; i += n) totals[0] = f(totals[0], hn::LoadU(d, x + i));
  V result = across(d, f(f(totals[0], totals[1]), f(totals[2], totals[3])));
  for (; i < count; ++i) result = f(result, hn::Set(d, x[i]));
  return hn::GetLane(result);
}

float sum_f32(const float* x, std::int64_t count) {
  return fold(
      x, count, 0.0f, [](V a, V b) HWY_ATTR { return hn::Add(a, b); },
      [](D d, V v) HWY_ATTR { return hn::SumOfLanes(d, v); });
}

// Highway's Max and Min may drop a NaN, so NaN is checked for separately; its MaxOfLanes and MinOfLanes may drop an
// infinity, so they are not used.
template <class F>
float extreme(const float* x, std::int64_t count, float start, F f) {
  const D d;
  const std::int64_t n = lanes();
  V best[2] = {hn::Set(d, start), hn::Set(d, start)};
  auto unordered = ieee::differ(hn::Zero(d), hn::Zero(d));  // none: all lanes are false
  std::int64_t i = 0;
  for (; i + 2 * n <= count; i += 2 * n)
    for (int k = 0; k < 2; ++k) {
      const V values = hn::LoadU(d, x + i + k * n);
      best[k] = f(best[k], values);
      unordered = hn::Or(unordered, ieee::differ(values, values));
    }
  float across[hn::MaxLanes(d)];
  hn::StoreU(f(best[0], best[1]), d, across);
  V result = hn::Set(d, across[0]);
  for (std::int64_t lane = 1; lane < n; ++lane) result = f(result, hn::Set(d, across[lane]));
  if (!hn::AllFalse(d, unordered)) return std::numeric_limits<float>::quiet_NaN();
  for (; i < count; ++i) {
    if (x[i] != x[i]) return x[i];
    result = f(result, hn::Set(d, x[i]));
  }
  return hn::GetLane(result);
}

float max_f32(const float* x, std::int64_t count) {
  return extreme(x, count, -std::numeric_limits<float>::infinity(), [](V a, V b) HWY_ATTR { return hn::Max(a, b); });
}
float min_f32(const float* x, std::int64_t count) {
  return extreme(x, count, std::numeric_limits<float>::infinity(), [](V a, V b) HWY_ATTR { return hn::Min(a, b); });
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>
#include <limits>
#include <numbers>

#include <jerboa/base/float16.h>
#include <jerboa/base/random.h>

namespace jerboa::cpu {
namespace {

HWY_EXPORT(f_neg);
HWY_EXPORT(f_abs);
HWY_EXPORT(f_sqrt);
HWY_EXPORT(f_rsqrt);
HWY_EXPORT(f_log);
HWY_EXPORT(f_exp);
HWY_EXPORT(f_expm1);
HWY_EXPORT(f_sin);
HWY_EXPORT(f_cos);
HWY_EXPORT(f_tanh);
HWY_EXPORT(f_sigmoid);
HWY_EXPORT(f_erf);
HWY_EXPORT(f_relu);
HWY_EXPORT(f_silu);
HWY_EXPORT(f_softplus);
HWY_EXPORT(f_floor);
HWY_EXPORT(f_round);
HWY_EXPORT(f_gelu);
HWY_EXPORT(f_clamp);
HWY_EXPORT(f_whole_power);
HWY_EXPORT(f_add);
HWY_EXPORT(f_sub);
HWY_EXPORT(f_mul);
HWY_EXPORT(f_div);
HWY_EXPORT(f_maximum);
HWY_EXPORT(f_minimum);
HWY_EXPORT(f_mul_plus);
HWY_EXPORT(f_mul_minus);
HWY_EXPORT(f_minus_mul);
HWY_EXPORT(f_equal);
HWY_EXPORT(f_not_equal);
HWY_EXPORT(f_less);
HWY_EXPORT(f_less_equal);
HWY_EXPORT(f_greater);
HWY_EXPORT(f_greater_equal);
HWY_EXPORT(select);
HWY_EXPORT(sum_f32);
HWY_EXPORT(max_f32);
HWY_EXPORT(min_f32);

// Runs before functions are looked up, so that they are those of this machine's instruction set.
void choose_target() {
  if (!hwy::GetChosenTarget().IsInitialized()) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The remaining functions are rare or on integers, so plain loops suffice.

template <class A, class Y, class F>
void map1(const VectorCall& call, F f) {
  const auto* a = static_cast<const A*>(call.a);
  auto* y = static_cast<Y*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = f(a[call.a_scalar ? 0 : i]);
}

template <class A, class Y, class F>
void map2(const VectorCall& call, F f) {
  const auto* a = static_cast<const A*>(call.a);
  const auto* b = static_cast<const A*>(call.b);
  auto* y = static_cast<Y*>(call.y);
  for (std::int64_t i = 0; i < call.count; ++i) y[i] = f(a[call.a_scalar ? 0 : i], b[call.b_scalar ? 0 : i]);
}

// `f` on values of T, computed in unsigned arithmetic, where overflow wraps.
template <class T, class F>
void wrapping(const VectorCall& call, F f) {
  map2<T, T>(call,
             [f](T a, T b) { return static_cast<T>(f(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b))); });
}

template <class T>
T divide(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(0u - static_cast<std::uint32_t>(a));
  return a / b;
}

template <class T>
T remainder(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return a % b;
}

template <class T>
VectorFunction integer_function(Op op) {
  using U = std::uint32_t;
  switch (op) {
    case Op::neg:
      return [](const VectorCall& v) { map1<T, T>(v, [](T a) { return static_cast<T>(0u - static_cast<U>(a)); }); };
    case Op::abs:
      return [](const VectorCall& v) {
        map1<T, T>(v, [](T a) { return a < T{0} ? static_cast<T>(0u - static_cast<U>(a)) : a; });
      };
    case Op::bit_not: return [](const VectorCall& v) { map1<T, T>(v, [](T a) { return static_cast<T>(~a); }); };
    case Op::logical_not: return [](const VectorCall& v) { map1<T, T>(v, [](T a) { return static_cast<T>(a == 0); }); };
    case Op::clamp:
      return [](const VectorCall& v) {
        const auto low = static_cast<T>(v.number), high = static_cast<T>(v.number2);
        map1<T, T>(v, [low, high](T a) { return std::min(std::max(a, low), high); });
      };
    case Op::add: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a + b; }); };
    case Op::sub: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a - b; }); };
    case Op::mul: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a * b; }); };
    case Op::div: return [](const VectorCall& v) { map2<T, T>(v, divide<T>); };
    case Op::mod: return [](const VectorCall& v) { map2<T, T>(v, remainder<T>); };
    case Op::maximum: return [](const VectorCall& v) { map2<T, T>(v, [](T a, T b) { return std::max(a, b); }); };
    case Op::minimum: return [](const VectorCall& v) { map2<T, T>(v, [](T a, T b) { return std::min(a, b); }); };
    case Op::bit_and: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a & b; }); };
    case Op::bit_or: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a | b; }); };
    case Op::bit_xor: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a ^ b; }); };
    case Op::shift_left: return [](const VectorCall& v) { wrapping<T>(v, [](U a, U b) { return a << (b & 31u); }); };
    case Op::shift_right:
      return [](const VectorCall& v) {
        map2<T, T>(v, [](T a, T b) { return static_cast<T>(a >> (static_cast<U>(b) & 31u)); });
      };
    case Op::logical_and:
      return [](const VectorCall& v) { map2<T, T>(v, [](T a, T b) { return static_cast<T>(a != 0 && b != 0); }); };
    case Op::logical_or:
      return [](const VectorCall& v) { map2<T, T>(v, [](T a, T b) { return static_cast<T>(a != 0 || b != 0); }); };
    case Op::equal: return [](const VectorCall& v) { map2<T, std::int32_t>(v, [](T a, T b) { return a == b; }); };
    case Op::not_equal: return [](const VectorCall& v) { map2<T, std::int32_t>(v, [](T a, T b) { return a != b; }); };
    case Op::less: return [](const VectorCall& v) { map2<T, std::int32_t>(v, [](T a, T b) { return a < b; }); };
    case Op::less_equal: return [](const VectorCall& v) { map2<T, std::int32_t>(v, [](T a, T b) { return a <= b; }); };
    case Op::greater: return [](const VectorCall& v) { map2<T, std::int32_t>(v, [](T a, T b) { return a > b; }); };
    case Op::greater_equal:
      return [](const VectorCall& v) { map2<T, std::int32_t>(v, [](T a, T b) { return a >= b; }); };
    default: return nullptr;
  }
}

void fixed_power(const VectorCall& call) {
  const double exponent = call.number;
  if (exponent == std::nearbyint(exponent) && std::abs(exponent) <= 64)
    return HWY_DYNAMIC_DISPATCH(f_whole_power)(call);
  const auto e = static_cast<float>(exponent);
  map1<float, float>(call, [e](float a) { return std::pow(a, e); });
}

void power(const VectorCall& call) {
  if (call.b == nullptr) return fixed_power(call);
  map2<float, float>(call, [](float a, float b) { return std::pow(a, b); });
}

void random_numbers(const VectorCall& call) {
  const auto* element = static_cast<const std::int32_t*>(call.a);
  const auto key0 = *static_cast<const std::uint32_t*>(call.b), key1 = *static_cast<const std::uint32_t*>(call.c);
  auto* y = static_cast<float*>(call.y);
  const auto stream = static_cast<std::uint32_t>(call.number);
  for (std::int64_t i = 0; i < call.count; ++i) {
    const auto [x0, x1] = threefry({key0, key1}, {static_cast<std::uint32_t>(element[call.a_scalar ? 0 : i]), stream});
    if (call.index == static_cast<int>(Distribution::uniform)) {
      y[i] = static_cast<float>(x0 >> 8) * 0x1p-24f;
    } else {
      const double u1 = (static_cast<double>(x0 >> 8) + 1) * 0x1p-24, u2 = static_cast<double>(x1 >> 8) * 0x1p-24;
      y[i] = static_cast<float>(std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2));
    }
  }
}

// Towards zero, and clamped to the range of T; NaN gives 0.
template <class T>
T truncated(float x) {
  if (std::isnan(x)) return 0;
  constexpr auto low = static_cast<double>(std::numeric_limits<T>::min()),
                 high = static_cast<double>(std::numeric_limits<T>::max());
  // In this order NaN gives the lowest value: a conversion of NaN itself is undefined.
  return static_cast<T>(std::min(std::max(low, std::trunc(static_cast<double>(x))), high));
}

void copy(const VectorCall& call) {
  map1<std::uint32_t, std::uint32_t>(call, [](std::uint32_t a) { return a; });
}

VectorFunction cast_function(DType from, DType to) {
  using i32 = std::int32_t;
  using u32 = std::uint32_t;
  if (is_float(from)) {
    switch (to) {
      case DType::f32: return copy;
      case DType::f16:
        return [](const VectorCall& v) { map1<float, float>(v, [](float a) { return f16_to_f32(f32_to_f16(a)); }); };
      case DType::bf16:
        return [](const VectorCall& v) { map1<float, float>(v, [](float a) { return bf16_to_f32(f32_to_bf16(a)); }); };
      case DType::i32: return [](const VectorCall& v) { map1<float, i32>(v, truncated<i32>); };
      case DType::u32: return [](const VectorCall& v) { map1<float, u32>(v, truncated<u32>); };
      default: return [](const VectorCall& v) { map1<float, i32>(v, [](float a) { return a != 0; }); };
    }
  }
  if (is_float(to)) {
    if (from == DType::u32)
      return [](const VectorCall& v) { map1<u32, float>(v, [](u32 a) { return static_cast<float>(a); }); };
    return [](const VectorCall& v) { map1<i32, float>(v, [](i32 a) { return static_cast<float>(a); }); };
  }
  if (to == DType::boolean) return [](const VectorCall& v) { map1<u32, u32>(v, [](u32 a) { return u32{a != 0}; }); };
  return copy;
}

VectorFunction float_function(Op op) {
  switch (op) {
    case Op::neg: return &HWY_DYNAMIC_DISPATCH(f_neg);
    case Op::abs: return &HWY_DYNAMIC_DISPATCH(f_abs);
    case Op::sqrt: return &HWY_DYNAMIC_DISPATCH(f_sqrt);
    case Op::rsqrt: return &HWY_DYNAMIC_DISPATCH(f_rsqrt);
    case Op::log: return &HWY_DYNAMIC_DISPATCH(f_log);
    case Op::exp: return &HWY_DYNAMIC_DISPATCH(f_exp);
    case Op::expm1: return &HWY_DYNAMIC_DISPATCH(f_expm1);
    case Op::sin: return &HWY_DYNAMIC_DISPATCH(f_sin);
    case Op::cos: return &HWY_DYNAMIC_DISPATCH(f_cos);
    case Op::tanh: return &HWY_DYNAMIC_DISPATCH(f_tanh);
    case Op::sigmoid: return &HWY_DYNAMIC_DISPATCH(f_sigmoid);
    case Op::erf: return &HWY_DYNAMIC_DISPATCH(f_erf);
    case Op::relu: return &HWY_DYNAMIC_DISPATCH(f_relu);
    case Op::silu: return &HWY_DYNAMIC_DISPATCH(f_silu);
    case Op::softplus: return &HWY_DYNAMIC_DISPATCH(f_softplus);
    case Op::floor: return &HWY_DYNAMIC_DISPATCH(f_floor);
    case Op::round: return &HWY_DYNAMIC_DISPATCH(f_round);
    case Op::gelu: return &HWY_DYNAMIC_DISPATCH(f_gelu);
    case Op::clamp: return &HWY_DYNAMIC_DISPATCH(f_clamp);
    case Op::pow: return power;
    case Op::add: return &HWY_DYNAMIC_DISPATCH(f_add);
    case Op::sub: return &HWY_DYNAMIC_DISPATCH(f_sub);
    case Op::mul: return &HWY_DYNAMIC_DISPATCH(f_mul);
    case Op::div: return &HWY_DYNAMIC_DISPATCH(f_div);
    case Op::maximum: return &HWY_DYNAMIC_DISPATCH(f_maximum);
    case Op::minimum: return &HWY_DYNAMIC_DISPATCH(f_minimum);
    case Op::mod:
      return [](const VectorCall& v) { map2<float, float>(v, [](float a, float b) { return std::fmod(a, b); }); };
    case Op::equal: return &HWY_DYNAMIC_DISPATCH(f_equal);
    case Op::not_equal: return &HWY_DYNAMIC_DISPATCH(f_not_equal);
    case Op::less: return &HWY_DYNAMIC_DISPATCH(f_less);
    case Op::less_equal: return &HWY_DYNAMIC_DISPATCH(f_less_equal);
    case Op::greater: return &HWY_DYNAMIC_DISPATCH(f_greater);
    case Op::greater_equal: return &HWY_DYNAMIC_DISPATCH(f_greater_equal);
    default: return nullptr;
  }
}

}  // namespace

VectorFunction vector_function(Op op, DType operand, DType result) {
  choose_target();
  if (op == Op::cast) return cast_function(operand, result);
  if (op == Op::where) return &HWY_DYNAMIC_DISPATCH(select);  // moves bits, whatever their type
  if (op == Op::random) return random_numbers;
  if (is_float(operand)) return float_function(op);
  return operand == DType::u32 ? integer_function<std::uint32_t>(op) : integer_function<std::int32_t>(op);
}

VectorFunction mul_add_function(MulAdd form) {
  choose_target();
  switch (form) {
    case MulAdd::plus: return &HWY_DYNAMIC_DISPATCH(f_mul_plus);
    case MulAdd::minus: return &HWY_DYNAMIC_DISPATCH(f_mul_minus);
    case MulAdd::minus_product: return &HWY_DYNAMIC_DISPATCH(f_minus_mul);
  }
  return nullptr;
}

float neutral_f32(Op op, DType dtype) {
  if (op != Op::max && op != Op::min) return 0;
  return static_cast<float>(op == Op::max ? detail::lowest_value(dtype) : detail::highest_value(dtype));
}

float start_f32(Op op) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  return op == Op::max ? -infinity : op == Op::min ? infinity : 0;
}

float reduce_f32(Op op, const float* x, std::int64_t count) {
  if (op == Op::max) return HWY_DYNAMIC_DISPATCH(max_f32)(x, count);
  if (op == Op::min) return HWY_DYNAMIC_DISPATCH(min_f32)(x, count);
  return HWY_DYNAMIC_DISPATCH(sum_f32)(x, count);
}

void accumulate_f32(Op op, float* y, const float* x, std::int64_t count) {
  VectorCall call;
  call.y = y;
  call.a = y;  // element by element, in place
  call.b = x;
  call.count = count;
  if (op == Op::max) return HWY_DYNAMIC_DISPATCH(f_maximum)(call);
  if (op == Op::min) return HWY_DYNAMIC_DISPATCH(f_minimum)(call);
  HWY_DYNAMIC_DISPATCH(f_add)(call);
}

}  // namespace jerboa::cpu

#endif  // HWY_ONCE
