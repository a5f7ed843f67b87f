#include "backend/cpu/reference/elementwise.h"

#include <limits>
#include <numbers>

// Element-wise ops that depend on their attributes, or on a condition.
namespace jerboa::reference {
namespace {

double gelu(double x) { return vanishing(x, 0.5 * (1 + std::erf(x / std::numbers::sqrt2))); }

double gelu_tanh(double x) {
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return vanishing(x, 0.5 * (1 + std::tanh(inner)));
}

// Towards zero, and clamped to the range of T; NaN gives 0.
template <class T>
double truncated(double x) {
  if (std::isnan(x)) return 0;
  constexpr double lowest = std::numeric_limits<T>::lowest(), highest = std::numeric_limits<T>::max();
  return std::clamp(std::trunc(x), lowest, highest);
}

}  // namespace

template <>
void evaluate<Op::clamp>(const Call& call) {
  const auto& attrs = call.as<ClampAttrs>();
  map(call, [&]<Number T>(T x) { return std::min(std::max(static_cast<double>(x), attrs.min), attrs.max); });
}

template <>
void evaluate<Op::gelu>(const Call& call) {
  if (call.as<GeluAttrs>().approximate == GeluForm::tanh)
    map(call, [](Float auto x) { return gelu_tanh(x); });
  else
    map(call, [](Float auto x) { return gelu(x); });
}

template <>
void evaluate<Op::pow>(const Call& call) {
  const double exponent = call.as<PowAttrs>().exponent;
  if (call.has(1))
    map(call, []<Float T>(T a, T b) { return std::pow(a, b); });
  else
    map(call, [exponent](Float auto a) { return std::pow(a, exponent); });
}

template <>
void evaluate<Op::cast>(const Call& call) {
  const Value& x = call.in(0);
  Value& out = call.out();
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    if (out.dtype == DType::boolean)
      out.data[i] = x.data[i] != 0 ? 1 : 0;
    else if (is_float(x.dtype) && out.dtype == DType::i32)
      out.data[i] = truncated<std::int32_t>(x.data[i]);
    else if (is_float(x.dtype) && out.dtype == DType::u32)
      out.data[i] = truncated<std::uint32_t>(x.data[i]);
    else
      out.data[i] = wrapped(x.data[i], out.dtype);
  }
}

template <>
void evaluate<Op::where>(const Call& call) {
  const Value &condition = call.in(0), &a = call.in(1), &b = call.in(2);
  Value& out = call.out();
  const Sizes condition_strides = broadcast_strides(condition.shape, out.shape);
  const Sizes a_strides = broadcast_strides(a.shape, out.shape), b_strides = broadcast_strides(b.shape, out.shape);
  std::size_t next = 0;
  for_each_index(out.shape, [&](const Sizes& index) {
    const bool first = condition.data[offset_of(index, condition_strides)] != 0;
    out.data[next++] = first ? a.data[offset_of(index, a_strides)] : b.data[offset_of(index, b_strides)];
  });
}

}  // namespace jerboa::reference
