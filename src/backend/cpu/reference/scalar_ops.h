#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>

#include <jerboa/ir/op.h>

namespace jerboa::reference {

// One function per element-wise op, in the element's type: double for floats, i32, u32 and bool. Ops whose function
// depends on their attributes are in elementwise.cpp.

template <class T>
concept Float = std::same_as<T, double>;
template <class T>
concept Integer = std::same_as<T, std::int32_t> || std::same_as<T, std::uint32_t>;
template <class T>
concept Boolean = std::same_as<T, bool>;
template <class T>
concept Number = Float<T> || Integer<T>;
template <class T>
concept Element = Number<T> || Boolean<T>;

struct NoScalar {};
template <Op op>
inline constexpr NoScalar scalar{};

/// f in arithmetic modulo 2^32 for integers, in which overflow is defined.
template <class F, Number T>
T wrapping(F f, T a, T b) {
  if constexpr (Float<T>)
    return f(a, b);
  else
    return static_cast<T>(f(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b)));
}

inline double logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

/// -x, also for the lowest i32, which is its own negative.
template <Number T>
T negative(T x) {
  if constexpr (Float<T>)
    return -x;
  else
    return static_cast<T>(0u - static_cast<std::uint32_t>(x));
}

/// x * weight, for a weight that falls to 0 faster than x falls to minus infinity.
inline double vanishing(double x, double weight) { return weight == 0 ? 0 : x * weight; }

/// The order of max, argmax, top_k and argsort: NaN is above infinity, and equal to itself.
template <Element T>
bool comes_before(T a, T b) {
  if constexpr (Float<T>)
    return a < b || (std::isnan(b) && !std::isnan(a));
  else
    return a < b;
}

/// NaN if either is.
template <Number T>
T larger(T a, T b) {
  return comes_before(a, b) ? b : a;
}
template <Number T>
T smaller(T a, T b) {
  if constexpr (Float<T>)
    if (std::isnan(b)) return b;
  return b < a ? b : a;
}

#define SCALAR(op) \
  template <>      \
  inline constexpr auto scalar<Op::op>

SCALAR(neg) = [](Number auto x) { return negative(x); };
SCALAR(abs) = []<Number T>(T x) {
  if constexpr (Float<T>)
    return std::abs(x);
  else
    return x < 0 ? negative(x) : x;
};
SCALAR(sqrt) = [](Float auto x) { return std::sqrt(x); };
SCALAR(rsqrt) = [](Float auto x) { return 1 / std::sqrt(x); };
SCALAR(log) = [](Float auto x) { return std::log(x); };
SCALAR(exp) = [](Float auto x) { return std::exp(x); };
SCALAR(expm1) = [](Float auto x) { return std::expm1(x); };
SCALAR(sin) = [](Float auto x) { return std::sin(x); };
SCALAR(cos) = [](Float auto x) { return std::cos(x); };
SCALAR(tanh) = [](Float auto x) { return std::tanh(x); };
SCALAR(sigmoid) = [](Float auto x) { return logistic(x); };
SCALAR(erf) = [](Float auto x) { return std::erf(x); };
SCALAR(relu) = [](Float auto x) { return x < 0 ? 0.0 : x; };
SCALAR(silu) = [](Float auto x) { return vanishing(x, logistic(x)); };
SCALAR(softplus) = [](Float auto x) { return (x < 0 ? 0.0 : x) + std::log1p(std::exp(-std::abs(x))); };
SCALAR(floor) = [](Float auto x) { return std::floor(x); };
SCALAR(round) = [](Float auto x) { return std::nearbyint(x); };
SCALAR(logical_not) = [](Boolean auto x) { return !x; };
SCALAR(bit_not) = [](Integer auto x) { return ~x; };

SCALAR(add) = []<Number T>(T a, T b) { return wrapping([](auto x, auto y) { return x + y; }, a, b); };
SCALAR(sub) = []<Number T>(T a, T b) { return wrapping([](auto x, auto y) { return x - y; }, a, b); };
SCALAR(mul) = []<Number T>(T a, T b) { return wrapping([](auto x, auto y) { return x * y; }, a, b); };
SCALAR(div) = []<Number T>(T a, T b) -> T {
  if constexpr (Integer<T>) {
    if (b == 0) return a;
    if (b == static_cast<T>(-1)) return std::is_signed_v<T> ? negative(a) : static_cast<T>(a / b);
  }
  return a / b;
};
SCALAR(mod) = []<Number T>(T a, T b) -> T {
  if constexpr (Float<T>)
    return std::fmod(a, b);
  else if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)))
    return 0;
  else
    return a % b;
};
SCALAR(maximum) = []<Number T>(T a, T b) { return larger(a, b); };
SCALAR(minimum) = []<Number T>(T a, T b) { return smaller(a, b); };
SCALAR(equal) = []<Element T>(T a, T b) { return a == b; };
SCALAR(not_equal) = []<Element T>(T a, T b) { return a != b; };
SCALAR(less) = []<Element T>(T a, T b) { return a < b; };
SCALAR(less_equal) = []<Element T>(T a, T b) { return a <= b; };
SCALAR(greater) = []<Element T>(T a, T b) { return a > b; };
SCALAR(greater_equal) = []<Element T>(T a, T b) { return a >= b; };
SCALAR(logical_and) = [](Boolean auto a, Boolean auto b) { return a && b; };
SCALAR(logical_or) = [](Boolean auto a, Boolean auto b) { return a || b; };
SCALAR(bit_and) = []<Integer T>(T a, T b) { return a & b; };
SCALAR(bit_or) = []<Integer T>(T a, T b) { return a | b; };
SCALAR(bit_xor) = []<Integer T>(T a, T b) { return a ^ b; };
SCALAR(shift_left) = []<Integer T>(T a, T b) { return static_cast<T>(static_cast<std::uint32_t>(a) << (b & 31)); };
SCALAR(shift_right) = []<Integer T>(T a, T b) { return a >> (b & 31); };

#undef SCALAR

template <Op op>
concept HasScalar = !std::same_as<std::remove_cvref_t<decltype(scalar<op>)>, NoScalar>;

}  // namespace jerboa::reference
