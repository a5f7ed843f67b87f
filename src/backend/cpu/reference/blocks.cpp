#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"

// Softmax, norms and the loss.
namespace jerboa::reference {
namespace {

// log(sum(exp(x))) along a line, without overflow.
double log_sum_exp(const Value& x, const AlongAxis& along, std::int64_t o, std::int64_t i) {
  double top = x.data[along.at(o, 0, i)], total = 0;
  for (std::int64_t p = 0; p < along.size; ++p) top = std::max(top, x.data[along.at(o, p, i)]);
  for (std::int64_t p = 0; p < along.size; ++p) total += std::exp(x.data[along.at(o, p, i)] - top);
  return top + std::log(total);
}

// out = f(x, log-sum-exp of its line)
template <class F>
void map_lines(const Call& call, F f) {
  const Value& x = call.in(0);
  const AlongAxis along(x.shape, call.as<AxisAttrs>().axis);
  if (along.size == 0) return;
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    const double normalizer = log_sum_exp(x, along, o, i);
    for (std::int64_t p = 0; p < along.size; ++p)
      call.out().data[along.at(o, p, i)] = f(x.data[along.at(o, p, i)], normalizer);
  });
}

// Rows of the last axis: out = (x - middle) * scale [* weight] [+ bias], with middle and scale from statistics(row).
template <class Statistics>
void normalize_rows(const Call& call, Statistics statistics) {
  const Value& x = call.in(0);
  const std::int64_t width = x.shape.back();
  const bool biased = call.inputs.size() > 2 && call.has(2);
  for (std::int64_t start = 0; start < static_cast<std::int64_t>(x.data.size()); start += width) {
    const auto [middle, scale] = statistics(x.data.data() + start, width);
    for (std::int64_t j = 0; j < width; ++j) {
      double value = (x.data[start + j] - middle) * scale;
      if (call.has(1)) value *= call.in(1).data[j];
      if (biased) value += call.in(2).data[j];
      call.out().data[start + j] = value;
    }
  }
}

struct Statistics {
  double middle, scale;
};

}  // namespace

template <>
void evaluate<Op::softmax>(const Call& call) {
  map_lines(call, [](double x, double normalizer) { return std::exp(x - normalizer); });
}

template <>
void evaluate<Op::log_softmax>(const Call& call) {
  map_lines(call, [](double x, double normalizer) { return x - normalizer; });
}

template <>
void evaluate<Op::layer_norm>(const Call& call) {
  const double eps = call.as<EpsAttrs>().eps;
  normalize_rows(call, [eps](const double* row, std::int64_t width) {
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += row[j] / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) variance += (row[j] - mean) * (row[j] - mean) / static_cast<double>(width);
    return Statistics{mean, 1 / std::sqrt(variance + eps)};
  });
}

template <>
void evaluate<Op::rms_norm>(const Call& call) {
  const double eps = call.as<EpsAttrs>().eps;
  normalize_rows(call, [eps](const double* row, std::int64_t width) {
    double square = 0;
    for (std::int64_t j = 0; j < width; ++j) square += row[j] * row[j] / static_cast<double>(width);
    return Statistics{0, 1 / std::sqrt(square + eps)};
  });
}

template <>
void evaluate<Op::cross_entropy>(const Call& call) {
  const Value &logits = call.in(0), &targets = call.in(1);
  const double smoothing = call.as<CrossEntropyAttrs>().label_smoothing;
  const AlongAxis along(logits.shape, -1);
  if (along.size == 0) return;
  for (std::int64_t row = 0; row < along.outer; ++row) {
    const auto target = static_cast<std::int64_t>(targets.data[row]);
    if (target < 0) continue;
    const double normalizer = log_sum_exp(logits, along, row, 0);
    const double loss = normalizer - logits.data[along.at(row, std::min(target, along.size - 1), 0)];
    call.out().data[row] = loss;
    if (smoothing > 0) {
      // Smoothing moves this much of the target's probability evenly to all classes, including the target.
      double spread = 0;
      for (std::int64_t c = 0; c < along.size; ++c)
        spread += (normalizer - logits.data[along.at(row, c, 0)]) / static_cast<double>(along.size);
      call.out().data[row] = (1 - smoothing) * loss + smoothing * spread;
    }
    if (call.has(2)) call.out().data[row] *= call.in(2).data[row];
  }
}

}  // namespace jerboa::reference
