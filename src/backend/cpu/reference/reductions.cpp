#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"
#include "backend/cpu/reference/scalar_ops.h"
#include "base/value_range.h"

// Reductions, scans and sorts.
namespace jerboa::reference {
namespace {

using detail::highest_value;
using detail::lowest_value;

// Folds x over the axes of a ReduceAttrs into the output, which starts at `start`.
template <class Fold>
void reduce(const Call& call, double start, Fold fold) {
  const Value& x = call.in(0);
  Value& out = call.out();
  Sizes kept = x.shape;
  const auto axes = *resolve_axes(call.as<ReduceAttrs>().axes, static_cast<int>(kept.size()));
  for (const int axis : axes) kept[axis] = 1;
  const Sizes strides = broadcast_strides(kept, x.shape);
  std::fill(out.data.begin(), out.data.end(), start);
  std::size_t next = 0;
  for_each_index(x.shape, [&](const Sizes& index) {
    double& total = out.data[offset_of(index, strides)];
    total = fold(total, x.data[next++]);
  });
}

// The initial value of a maximum: the lowest value of all, or the result for no elements.
double start_of_max(const Value& x) {
  return is_float(x.dtype) && !x.data.empty() ? -std::numeric_limits<double>::infinity() : lowest_value(x.dtype);
}
double start_of_min(const Value& x) {
  return is_float(x.dtype) && !x.data.empty() ? std::numeric_limits<double>::infinity() : highest_value(x.dtype);
}

// The positions along a line of x, sorted stably by value.
std::vector<std::int64_t> sorted(const Value& x, const AlongAxis& along, std::int64_t o, std::int64_t i,
                                 bool descending) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(along.size));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const double first = x.data[along.at(o, a, i)], second = x.data[along.at(o, b, i)];
    return descending ? comes_before(second, first) : comes_before(first, second);
  });
  return order;
}

}  // namespace

template <>
void evaluate<Op::sum>(const Call& call) {
  const DType dtype = call.out().dtype;
  reduce(call, 0, [dtype](double total, double x) { return wrapped(total + x, dtype); });
}

template <>
void evaluate<Op::max>(const Call& call) {
  reduce(call, start_of_max(call.in(0)), larger<double>);
}

template <>
void evaluate<Op::min>(const Call& call) {
  reduce(call, start_of_min(call.in(0)), smaller<double>);
}

template <>
void evaluate<Op::argmax>(const Call& call) {
  const Value& x = call.in(0);
  const AlongAxis along(x.shape, call.as<ArgmaxAttrs>().axis);
  std::size_t next = 0;
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    std::int64_t best = 0;
    for (std::int64_t p = 1; p < along.size; ++p)
      if (comes_before(x.data[along.at(o, best, i)], x.data[along.at(o, p, i)])) best = p;
    call.out().data[next++] = static_cast<double>(best);
  });
}

template <>
void evaluate<Op::all_finite>(const Call& call) {
  const auto& data = call.in(0).data;
  const bool finite = std::all_of(data.begin(), data.end(), [](double x) { return std::isfinite(x); });
  call.out().data[0] = finite ? 1 : 0;
}

template <>
void evaluate<Op::sum_squares>(const Call& call) {
  double total = 0;
  for (const Value* operand : call.inputs)
    for (const double x : operand->data) total += x * x;
  call.out().data[0] = total;
}

template <>
void evaluate<Op::cumsum>(const Call& call) {
  const auto& attrs = call.as<CumsumAttrs>();
  const Value& x = call.in(0);
  const AlongAxis along(x.shape, attrs.axis);
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    double total = 0;
    for (std::int64_t p = 0; p < along.size; ++p) {
      const std::int64_t at = along.at(o, attrs.reverse ? along.size - 1 - p : p, i);
      total = wrapped(total + x.data[at], x.dtype);
      call.out().data[at] = total;
    }
  });
}

template <>
void evaluate<Op::cummax>(const Call& call) {
  const auto& attrs = call.as<CumsumAttrs>();
  const Value& x = call.in(0);
  const AlongAxis along(x.shape, attrs.axis);
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    std::int64_t best = -1;
    for (std::int64_t step = 0; step < along.size; ++step) {
      const std::int64_t p = attrs.reverse ? along.size - 1 - step : step, at = along.at(o, p, i);
      // A NaN stays the maximum.
      if (best < 0 || (!std::isnan(x.data[along.at(o, best, i)]) && !(x.data[at] <= x.data[along.at(o, best, i)])))
        best = p;
      call.out(0).data[at] = x.data[along.at(o, best, i)];
      call.out(1).data[at] = static_cast<double>(best);
    }
  });
}

template <>
void evaluate<Op::top_k>(const Call& call) {
  const auto& attrs = call.as<TopKAttrs>();
  const Value& x = call.in(0);
  const AlongAxis along(x.shape, attrs.axis), out(call.out().shape, attrs.axis);
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    const auto order = sorted(x, along, o, i, true);
    for (std::int64_t p = 0; p < out.size; ++p) {
      call.out(0).data[out.at(o, p, i)] = x.data[along.at(o, order[p], i)];
      call.out(1).data[out.at(o, p, i)] = static_cast<double>(order[p]);
    }
  });
}

template <>
void evaluate<Op::argsort>(const Call& call) {
  const auto& attrs = call.as<ArgsortAttrs>();
  const Value& x = call.in(0);
  const AlongAxis along(x.shape, attrs.axis);
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    const auto order = sorted(x, along, o, i, attrs.descending);
    for (std::int64_t p = 0; p < along.size; ++p) call.out().data[along.at(o, p, i)] = static_cast<double>(order[p]);
  });
}

}  // namespace jerboa::reference
