// Functions of f32 vectors that follow IEEE 754 for NaN and infinity, which Highway's do not: NaN gives NaN on
// every target, and arguments that are infinite or out of the range of the approximation give the function's limit.
// Included once per target by files that use Highway's foreach_target.
#if defined(JERBOA_BACKEND_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_BACKEND_CPU_MATH_INL_H
#undef JERBOA_BACKEND_CPU_MATH_INL_H
#else
#define JERBOA_BACKEND_CPU_MATH_INL_H
#endif

#include <cmath>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE::ieee {

namespace hn = hwy::HWY_NAMESPACE;

// Comparisons are chosen so that NaN takes the branch that passes it on: comparing with NaN is always false, but for
// `differ`. Highway's Ne, Min and Max treat NaN differently on different targets.

template <class V>
HWY_INLINE auto differ(V a, V b) {
  return hn::Not(hn::Eq(a, b));
}

template <class V>
HWY_INLINE V maximum(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), differ(a, a)), a, b);
}

template <class V>
HWY_INLINE V minimum(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), differ(a, a)), a, b);
}

template <class D, class V>
HWY_INLINE V clamp(D d, V x, float low, float high) {
  const V from = hn::Set(d, low), to = hn::Set(d, high);
  const V raised = hn::IfThenElse(hn::Lt(x, from), from, x);
  return hn::IfThenElse(hn::Gt(raised, to), to, raised);
}

template <class D, class V>
HWY_INLINE V relu(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

template <class D, class V>
HWY_INLINE V infinity(D d) {
  return hn::Set(d, std::numeric_limits<float>::infinity());
}

// The range of Highway's Exp and Expm1; beyond it they return garbage.
constexpr float largest_exponent = 104;

// Highway's Exp turns NaN into 0. The product is infinite above the range, and NaN for NaN.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  const V beyond = hn::Mul(x, hn::Set(d, std::numeric_limits<float>::max()));
  return hn::IfThenElse(hn::Le(x, hn::Set(d, largest_exponent)), hn::Exp(d, x), beyond);
}

template <class D, class V>
HWY_INLINE V expm1(D d, V x) {
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, largest_exponent)), infinity<D, V>(d), hn::Expm1(d, x));
}

template <class D, class V>
HWY_INLINE V log(D d, V x) {
  const V zero = hn::Zero(d), infinite = infinity<D, V>(d);
  const V negative = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const V special = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinite), hn::IfThenElse(hn::Lt(x, zero), negative, x));
  return hn::IfThenElse(hn::And(hn::Gt(x, zero), hn::Lt(x, infinite)), hn::Log(d, x), special);
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// x * weight(x), where the weight falls to 0 faster than x falls to minus infinity: in f32 the product is 0 well before
// that.
template <class D, class V>
HWY_INLINE V vanishing(D d, V x, V product) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -1e4F)), product);
}

template <class D, class V>
HWY_INLINE V silu(D d, V x) {
  return vanishing(d, x, hn::Mul(x, sigmoid(d, x)));
}

// The logarithm's argument is in [1, 2]; its value for NaN does not matter, since the first term is NaN as well.
template <class D, class V>
HWY_INLINE V softplus(D d, V x) {
  return hn::Add(relu(d, x), hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(x)))));
}

// A rational function of |x|, accurate to a few units in the last place as long as tanh is not 1 in f32. Beyond that it
// keeps rising slowly, and at the bound exceeds 1 by more than its rounding errors, so that the minimum is exactly 1
// there.
template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  constexpr float bound = 10;
  const V size = hn::Abs(x), bounded = hn::Min(size, hn::Set(d, bound));
  const V square = hn::Mul(bounded, bounded);
  V top = hn::Set(d, -2.76076847742355e-16F);
  for (const float k : {2.00018790482477e-13F, -8.60467152213735e-11F, 5.12229709037114e-08F, 1.48572235717979e-05F,
                        6.37261928875436e-04F, 4.89352455891786e-03F})
    top = hn::MulAdd(top, square, hn::Set(d, k));
  V bottom = hn::Set(d, 1.19825839466702e-06F);
  for (const float k : {1.18534705686654e-04F, 2.26843463243900e-03F, 4.89352518554385e-03F})
    bottom = hn::MulAdd(bottom, square, hn::Set(d, k));
  const V value = hn::Min(hn::Div(hn::Mul(bounded, top), bottom), hn::Set(d, 1.0F));
  return hn::IfThenElse(hn::Ge(size, hn::Set(d, 0.0004F)), hn::CopySign(value, x), x);
}

// A rational function of x², accurate to a few units in the last place on the range where erf is not 1 in f32.
template <class D, class V>
HWY_INLINE V erf(D d, V x) {
  const V bounded = clamp(d, x, -4.0F, 4.0F);
  const V square = hn::Mul(bounded, bounded);
  V top = hn::Set(d, -2.72614225801306e-10F);
  for (const float k : {2.77068142495902e-08F, -2.10102402082508e-06F, -5.69250639462346e-05F, -7.34990630326855e-04F,
                        -2.95459980854025e-03F, -1.60960333262415e-02F})
    top = hn::MulAdd(top, square, hn::Set(d, k));
  V bottom = hn::Set(d, -1.45660718464996e-05F);
  for (const float k : {-2.13374055278905e-04F, -1.68282697438203e-03F, -7.37332916720468e-03F, -1.42647390514189e-02F})
    bottom = hn::MulAdd(bottom, square, hn::Set(d, k));
  return hn::Div(hn::Mul(bounded, top), bottom);
}

template <class D, class V>
HWY_INLINE V gelu_exact(D d, V x) {
  const V half = hn::Mul(x, hn::Set(d, 0.5F));
  return vanishing(d, x, hn::MulAdd(half, erf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752F))), half));
}

// x * sigmoid(2 c (x + k x³)), which equals the form with tanh.
template <class D, class V>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V inner = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715F), x);
  return vanishing(d, x, hn::Mul(x, sigmoid(d, hn::Mul(inner, hn::Set(d, 1.5957691216057308F)))));
}

// The largest argument that Highway reduces to a quarter turn without losing digits.
constexpr float largest_angle = 39000;

// `near` for angles in that range; other elements are computed one at a time in f64. Elements do not depend on their
// neighbours in the vector, which may be garbage past the end of an array.
template <class D, class V, class Scalar>
HWY_INLINE V of_angle(D d, V x, V near, Scalar scalar) {
  const auto in_range = hn::Le(hn::Abs(x), hn::Set(d, largest_angle));
  if (HWY_LIKELY(hn::AllTrue(d, in_range))) return near;
  HWY_ALIGN float values[hn::MaxLanes(D())];
  hn::Store(x, d, values);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) values[i] = static_cast<float>(scalar(static_cast<double>(values[i])));
  return hn::IfThenElse(in_range, near, hn::Load(d, values));
}

template <class D, class V>
HWY_INLINE V sin(D d, V x) {
  return of_angle(d, x, hn::Sin(d, x), [](double angle) { return std::sin(angle); });
}

template <class D, class V>
HWY_INLINE V cos(D d, V x) {
  return of_angle(d, x, hn::Cos(d, x), [](double angle) { return std::cos(angle); });
}

}  // namespace jerboa::cpu::HWY_NAMESPACE::ieee
HWY_AFTER_NAMESPACE();

#endif
