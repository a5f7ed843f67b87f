#include "transform/grad_rules.h"

#include <cmath>
#include <numbers>

#include <jerboa/ir/packed_cache.h>
#include <jerboa/ir/shapes.h>

#include "ir/op_functions.h"
#include "transform/attention_math.h"
#include "transform/checked_indices.h"
#include "transform/recurrent_math.h"

// All gradients, one rule for each op, written in ops. If several operands are computed, each is a separate statement,
// because C++ leaves the order of evaluation of arguments, and with it the graph, to the compiler.
namespace jerboa::detail {

std::optional<Op> mutated_gradient;

namespace {

using G = const GradContext&;

// A row of the op table with Rule but without a rule here does not compile, and the error names the op.
template <Op op>
Grads gradient(G g) = delete;

Operand maybe(const Tensor& tensor) { return tensor ? Operand(tensor) : Operand(); }

// Element-wise, one operand

template <>
Grads gradient<Op::neg>(G g) {
  return {-g.dy};
}
template <>
Grads gradient<Op::abs>(G g) {
  const Tensor above = g.x[0] > 0;
  const Tensor below = g.x[0] < 0;
  const Tensor negative = -g.dy;
  return {where(above, g.dy, where(below, negative, 0))};
}
template <>
Grads gradient<Op::sqrt>(G g) {
  return {g.dy / (2 * g.y[0])};
}
template <>
Grads gradient<Op::rsqrt>(G g) {
  return {g.dy * -0.5 * g.y[0] / g.x[0]};
}
template <>
Grads gradient<Op::log>(G g) {
  return {g.dy / g.x[0]};
}
template <>
Grads gradient<Op::exp>(G g) {
  return {g.dy * g.y[0]};
}
template <>
Grads gradient<Op::expm1>(G g) {
  return {g.dy * (g.y[0] + 1)};
}
template <>
Grads gradient<Op::sin>(G g) {
  return {g.dy * cos(g.x[0])};
}
template <>
Grads gradient<Op::cos>(G g) {
  return {-(g.dy * sin(g.x[0]))};
}
template <>
Grads gradient<Op::tanh>(G g) {
  return {g.dy * (1 - g.y[0] * g.y[0])};
}
template <>
Grads gradient<Op::sigmoid>(G g) {
  return {g.dy * (g.y[0] * (1 - g.y[0]))};
}
template <>
Grads gradient<Op::relu>(G g) {
  return {where(g.x[0] > 0, g.dy, 0)};
}
template <>
Grads gradient<Op::softplus>(G g) {
  return {g.dy * sigmoid(g.x[0])};
}
template <>
Grads gradient<Op::erf>(G g) {
  const Tensor slope = exp(-(g.x[0] * g.x[0])) * (2 * std::numbers::inv_sqrtpi);
  return {g.dy * slope};
}
template <>
Grads gradient<Op::silu>(G g) {
  const Tensor s = sigmoid(g.x[0]);
  return {g.dy * (s * (1 + g.x[0] * (1 - s)))};
}
template <>
Grads gradient<Op::gelu>(G g) {
  const Tensor& x = g.x[0];
  if (g.as<GeluAttrs>().approximate == GeluForm::none) {
    const Tensor density = exp(-0.5 * (x * x)) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    const Tensor probability = 0.5 * (1 + erf(x / std::numbers::sqrt2));
    return {g.dy * (probability + x * density)};
  }
  // (1 + tanh(u)) / 2 is the sigmoid of 2u.
  const double c = 2 * std::sqrt(2 / std::numbers::pi), k = 0.044715;
  const Tensor s = sigmoid(c * (x + k * (x * x * x)));
  const Tensor bend = x * (s * (1 - s));
  return {g.dy * (s + bend * (c * (1 + 3 * k * (x * x))))};
}
template <>
Grads gradient<Op::clamp>(G g) {
  const auto& bounds = g.as<ClampAttrs>();
  const Tensor above = g.x[0] >= bounds.min;
  const Tensor below = g.x[0] <= bounds.max;
  return {where(logical_and(above, below), g.dy, 0)};
}
template <>
Grads gradient<Op::cast>(G g) {
  if (!is_float(g.x[0].dtype())) return {{}};
  return {cast(g.dy, g.x[0].dtype())};
}

// Element-wise, two operands or three

template <>
Grads gradient<Op::add>(G g) {
  return {g.dy, g.dy};
}
template <>
Grads gradient<Op::sub>(G g) {
  return {g.dy, g.wanted[1] ? -g.dy : Tensor()};
}
template <>
Grads gradient<Op::mul>(G g) {
  return {g.wanted[0] ? g.dy * g.x[1] : Tensor(), g.wanted[1] ? g.dy * g.x[0] : Tensor()};
}
template <>
Grads gradient<Op::div>(G g) {
  return {g.wanted[0] ? g.dy / g.x[1] : Tensor(), g.wanted[1] ? -(g.dy * g.y[0] / g.x[1]) : Tensor()};
}
template <>
Grads gradient<Op::pow>(G g) {
  const Tensor& a = g.x[0];
  if (!g.x[1]) {
    const double e = g.as<PowAttrs>().exponent;
    if (e == 0) return {{}, {}};
    if (e == 1) return {g.dy, {}};
    return {g.dy * (e * (e == 2 ? a : pow(a, e - 1))), {}};
  }
  Tensor da, dexponent;
  if (g.wanted[0]) {
    const Tensor slope = g.x[1] * pow(a, g.x[1] - 1);
    da = g.dy * slope;
  }
  if (g.wanted[1]) {
    const Tensor slope = g.y[0] * log(a);
    dexponent = g.dy * slope;
  }
  return {da, dexponent};
}
// Each side gets half of a tie.
template <>
Grads gradient<Op::maximum>(G g) {
  const Tensor tie = equal(g.x[0], g.x[1]);
  const Tensor half = 0.5 * g.dy;
  return {where(tie, half, where(g.x[0] > g.x[1], g.dy, 0)), where(tie, half, where(g.x[1] > g.x[0], g.dy, 0))};
}
template <>
Grads gradient<Op::minimum>(G g) {
  const Tensor tie = equal(g.x[0], g.x[1]);
  const Tensor half = 0.5 * g.dy;
  return {where(tie, half, where(g.x[0] < g.x[1], g.dy, 0)), where(tie, half, where(g.x[1] < g.x[0], g.dy, 0))};
}
template <>
Grads gradient<Op::mod>(G g) {
  if (!g.wanted[1]) return {g.dy, {}};
  const Tensor quotient = g.x[0] / g.x[1];
  const Tensor negative = quotient < 0;
  const Tensor up = -floor(-quotient);
  const Tensor truncated = where(negative, up, floor(quotient));
  return {g.dy, -(g.dy * truncated)};
}
template <>
Grads gradient<Op::where>(G g) {
  return {{}, g.wanted[1] ? where(g.x[0], g.dy, 0) : Tensor(), g.wanted[2] ? where(g.x[0], 0, g.dy) : Tensor()};
}

// Reductions, scans and sorts

// The cotangent of a reduction, in the operand's shape.
Tensor spread(const Tensor& reduced, const Tensor& x, const std::vector<int>& axes) {
  Shape kept = x.shape();
  for (const int axis : axes_of(axes, x.rank())) kept[static_cast<std::size_t>(axis)] = 1;
  return broadcast_to(reduced.shape() == kept ? reduced : reshape(reduced, kept), x.shape());
}

template <>
Grads gradient<Op::sum>(G g) {
  return {spread(g.dy, g.x[0], g.as<ReduceAttrs>().axes)};
}

// Ties share the gradient in equal parts.
Grads extremum(G g) {
  const auto& axes = g.as<ReduceAttrs>().axes;
  const Tensor& x = g.x[0];
  const Tensor best = cast(equal(x, spread(g.y[0], x, axes)), x.dtype());
  const Tensor taken = best * spread(g.dy, x, axes);
  return {taken / sum(best, axes, true)};
}
template <>
Grads gradient<Op::max>(G g) {
  return extremum(g);
}
template <>
Grads gradient<Op::min>(G g) {
  return extremum(g);
}

template <>
Grads gradient<Op::sum_squares>(G g) {
  Grads grads;
  for (const Tensor& x : g.x) grads.push_back(x * cast(2 * g.dy, x.dtype()));
  return grads;
}

template <>
Grads gradient<Op::cumsum>(G g) {
  const auto& attrs = g.as<CumsumAttrs>();
  return {cumsum(g.dy, attrs.axis, !attrs.reverse)};
}
template <>
Grads gradient<Op::cummax>(G g) {
  return {scatter_add(zeros_like(g.x[0]), g.y[1], g.dy, g.as<CumsumAttrs>().axis)};
}
template <>
Grads gradient<Op::top_k>(G g) {
  return {scatter_add(zeros_like(g.x[0]), g.y[1], g.dy, g.as<TopKAttrs>().axis)};
}

// Shape

template <>
Grads gradient<Op::reshape>(G g) {
  return {reshape(g.dy, g.x[0].shape())};
}
template <>
Grads gradient<Op::transpose>(G g) {
  const auto& perm = g.as<TransposeAttrs>().perm;
  std::vector<int> back(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    back[static_cast<std::size_t>(axis_of(perm[i], g.x[0].rank()))] = static_cast<int>(i);
  return {transpose(g.dy, back)};
}
template <>
Grads gradient<Op::broadcast_to>(G g) {
  return {sum_to_shape(g.dy, g.x[0].shape())};
}

template <>
Grads gradient<Op::slice>(G g) {
  const auto& attrs = g.as<SliceAttrs>();
  const Tensor& x = g.x[0];
  const SliceRange range = *resolve_slice(attrs, x.shape());
  if (range.step == 1) return {Contribution(g.dy, range.axis, range.start)};
  // Each element goes back to where it came from: slice the positions in the same way.
  Shape line(x.shape().size(), Dim(1));
  line[static_cast<std::size_t>(range.axis)] = range.length;
  const Tensor row = reshape(slice(arange(x.dim(range.axis)), 0, attrs.start, attrs.end, attrs.step), line);
  const Tensor places = broadcast_to(row, g.dy.shape());
  return {scatter_add(zeros_like(x), places, g.dy, range.axis)};
}

template <>
Grads gradient<Op::concat>(G g) {
  const int axis = g.as<AxisAttrs>().axis;
  Grads grads;
  Dim start(0);
  for (const Tensor& part : g.x) {
    const Dim end = start + part.dim(axis);
    grads.push_back(slice(g.dy, axis, start, end));
    start = end;
  }
  return grads;
}

template <>
Grads gradient<Op::pad>(G g) {
  const auto& before = g.as<PadAttrs>().before;
  Tensor inner = g.dy;
  for (int axis = 0; axis < g.x[0].rank(); ++axis) {
    const Dim start = before[static_cast<std::size_t>(axis)], size = g.x[0].dim(axis);
    if (!(inner.dim(axis) == size)) inner = slice(inner, axis, start, start + size);
  }
  return {inner};
}

// Indexing

// The gradient of an int8 or int4 weight, one group after another along a new last axis.
Tensor by_group(const Tensor& dweight, const Tensor& scales) {
  Shape shape = scales.shape();
  shape.push_back(quantised_group);
  return reshape(dweight, shape);
}

// For scales: the gradient of each weight times its quantised value, summed over the weights that share the scale.
Tensor gradient_of_scales(const Tensor& dweight, const Tensor& weight, const Tensor& scales) {
  const Tensor whole = dequantise(weight, zeros_like(scales) + 1);
  return sum(by_group(dweight * whole, scales), {-1});
}

// For minimums: the sum over the weights that share one.
Tensor gradient_of_mins(const Tensor& dweight, const Tensor& mins) { return sum(by_group(dweight, mins), {-1}); }

template <>
Grads gradient<Op::embedding>(G g) {
  return {embedding_grad(g.x[1], g.dy, g.x[0].dim(0)), {}};
}
template <>
Grads gradient<Op::embedding_quantised>(G g) {
  const Tensor& mins = g.x[2];
  const Tensor dweight = embedding_grad(g.x[3], g.dy, g.x[0].dim(0));
  return {{}, gradient_of_scales(dweight, g.x[0], g.x[1]), mins ? gradient_of_mins(dweight, mins) : Tensor(), {}};
}
template <>
Grads gradient<Op::embedding_grad>(G g) {
  const CheckedIndices ids = checked(g.x[0], g.dy.dim(0));
  const Tensor is_kept = unsqueeze(ids.in_range, {-1});
  return {{}, where(is_kept, embedding(g.dy, ids.nearest), 0)};
}
template <>
Grads gradient<Op::take_along_axis>(G g) {
  return {scatter_add(zeros_like(g.x[0]), g.x[1], g.dy, g.as<AxisAttrs>().axis), {}};
}
template <>
Grads gradient<Op::scatter_add>(G g) {
  const int axis = g.as<AxisAttrs>().axis;
  const CheckedIndices indices = checked(g.x[1], g.dy.dim(axis));
  return {g.dy, {}, where(indices.in_range, take_along_axis(g.dy, indices.nearest, axis), 0)};
}
template <>
Grads gradient<Op::scatter>(G g) {
  const int axis = g.as<AxisAttrs>().axis;
  const Tensor& updates = g.x[2];
  const CheckedIndices indices = checked(g.x[1], g.dy.dim(axis));
  // If several updates have the same index, the last one wins: the one that reads back its own number.
  Shape line(updates.shape().size(), Dim(1));
  line[static_cast<std::size_t>(axis_of(axis, updates.rank()))] = updates.dim(axis);
  const Tensor number = broadcast_to(reshape(arange(updates.dim(axis)), line), updates.shape());
  const Tensor winner =
      take_along_axis(scatter(zeros(g.x[0].shape(), DType::i32), g.x[1], number, axis), indices.nearest, axis);
  const Tensor kept = scatter(g.dy, g.x[1], zeros_like(updates), axis);
  const Tensor wins = logical_and(equal(winner, number), indices.in_range);
  return {kept, {}, where(wins, take_along_axis(g.dy, indices.nearest, axis), 0)};
}

// Linear algebra

// A batch of matrices times one matrix is one tall matrix times it, so the weight gradient is a single product.
Tensor flatten_rows(const Tensor& x) { return x.rank() == 2 ? x : reshape(x, {-1, x.dim(-1)}); }

template <>
Grads gradient<Op::matmul>(G g) {
  const auto [ta, tb] = g.as<MatmulAttrs>();
  const Tensor &a = g.x[0], &b = g.x[1], &dy = g.dy;
  Tensor da, db;
  if (g.wanted[0]) da = ta ? matmul(b, dy, {tb, true}) : matmul(dy, b, {false, !tb});
  if (g.wanted[1]) {
    const bool shared = b.rank() == 2 && a.rank() > 2 && !ta;
    const Tensor rows = shared ? flatten_rows(a) : a, drows = shared ? flatten_rows(dy) : dy;
    db = tb ? matmul(drows, rows, {true, ta}) : matmul(rows, drows, {!ta, false});
  }
  return {da, db};
}
template <>
Grads gradient<Op::dequantise>(G g) {
  const Tensor dscales = gradient_of_scales(g.dy, g.x[0], g.x[1]);
  return {{}, dscales, g.x[2] ? gradient_of_mins(g.dy, g.x[2]) : Tensor()};
}
template <>
Grads gradient<Op::matmul_quantised>(G g) {
  const Tensor &x = g.x[0], &weight = g.x[1], &scales = g.x[2], &mins = g.x[3];
  Tensor dx, dscales, dmins;
  if (g.wanted[0]) dx = matmul(g.dy, cast(dequantise(weight, scales, maybe(mins)), g.dy.dtype()));
  if (g.wanted[2] || (mins && g.wanted[3])) {
    const Tensor drows = flatten_rows(g.dy);
    const Tensor dweight = cast(matmul(drows, flatten_rows(x), {true, false}), scales.dtype());
    if (g.wanted[2]) dscales = gradient_of_scales(dweight, weight, scales);
    if (mins && g.wanted[3]) dmins = gradient_of_mins(dweight, mins);
  }
  return {dx, {}, dscales, dmins};
}
template <>
Grads gradient<Op::matmul_grouped>(G g) {
  const bool tb = g.as<GroupedAttrs>().transpose_b;
  return {matmul_grouped(g.dy, g.x[1], g.x[2], {!tb}),
          tb ? matmul_grouped_weight_grad(g.dy, g.x[0], g.x[2]) : matmul_grouped_weight_grad(g.x[0], g.dy, g.x[2]),
          {}};
}
template <>
Grads gradient<Op::matmul_grouped_quantised>(G g) {
  const Tensor &x = g.x[0], &weight = g.x[1], &scales = g.x[2], &mins = g.x[3], &offsets = g.x[4];
  Tensor dx, dscales, dmins;
  if (g.wanted[0]) dx = matmul_grouped(g.dy, cast(dequantise(weight, scales, maybe(mins)), g.dy.dtype()), offsets);
  if (g.wanted[2] || (mins && g.wanted[3])) {
    const Tensor dweight = cast(matmul_grouped_weight_grad(g.dy, x, offsets), scales.dtype());
    if (g.wanted[2]) dscales = gradient_of_scales(dweight, weight, scales);
    if (mins && g.wanted[3]) dmins = gradient_of_mins(dweight, mins);
  }
  return {dx, {}, dscales, dmins, {}};
}
template <>
Grads gradient<Op::matmul_grouped_weight_grad>(G g) {
  return {matmul_grouped(g.x[1], g.dy, g.x[2], {true}), matmul_grouped(g.x[0], g.dy, g.x[2]), {}};
}

Conv2dGradAttrs conv_grad_attrs(const Conv2dAttrs& attrs, const Tensor& like) {
  return {attrs.stride, attrs.padding, attrs.dilation, attrs.groups, {like.dim(2), like.dim(3)}};
}
Conv2dAttrs conv_attrs(const Conv2dGradAttrs& attrs) {
  return {attrs.stride, attrs.padding, attrs.dilation, attrs.groups};
}
template <>
Grads gradient<Op::conv2d>(G g) {
  const auto& attrs = g.as<Conv2dAttrs>();
  return {g.wanted[0] ? conv2d_input_grad(g.dy, g.x[1], conv_grad_attrs(attrs, g.x[0])) : Tensor(),
          g.wanted[1] ? conv2d_weight_grad(g.x[0], g.dy, conv_grad_attrs(attrs, g.x[1])) : Tensor(),
          g.wanted[2] ? sum(g.dy, {0, 2, 3}) : Tensor()};
}
template <>
Grads gradient<Op::conv2d_input_grad>(G g) {
  const auto& attrs = g.as<Conv2dGradAttrs>();
  return {g.wanted[0] ? conv2d(g.dy, g.x[1], {}, conv_attrs(attrs)) : Tensor(),
          g.wanted[1] ? conv2d_weight_grad(g.dy, g.x[0], conv_grad_attrs(conv_attrs(attrs), g.x[1])) : Tensor()};
}
template <>
Grads gradient<Op::conv2d_weight_grad>(G g) {
  const auto& attrs = g.as<Conv2dGradAttrs>();
  return {g.wanted[0] ? conv2d_input_grad(g.x[1], g.dy, conv_grad_attrs(conv_attrs(attrs), g.x[0])) : Tensor(),
          g.wanted[1] ? conv2d(g.x[0], g.dy, {}, conv_attrs(attrs)) : Tensor()};
}
PoolGradAttrs pool_grad_attrs(const PoolAttrs& attrs, const Tensor& x) {
  return {attrs.kernel, attrs.stride, attrs.padding, {x.dim(2), x.dim(3)}};
}
template <>
Grads gradient<Op::max_pool2d>(G g) {
  return {max_pool2d_grad(g.x[0], g.dy, pool_grad_attrs(g.as<PoolAttrs>(), g.x[0]))};
}
template <>
Grads gradient<Op::avg_pool2d>(G g) {
  return {avg_pool2d_grad(g.dy, pool_grad_attrs(g.as<PoolAttrs>(), g.x[0]))};
}
template <>
Grads gradient<Op::avg_pool2d_grad>(G g) {
  const auto& attrs = g.as<PoolGradAttrs>();
  return {avg_pool2d(g.dy, {attrs.kernel, attrs.stride, attrs.padding})};
}

// Blocks

template <>
Grads gradient<Op::softmax>(G g) {
  const Tensor weighted = g.y[0] * g.dy;
  return {weighted - g.y[0] * sum(weighted, {g.as<AxisAttrs>().axis}, true)};
}
template <>
Grads gradient<Op::log_softmax>(G g) {
  const Tensor probabilities = exp(g.y[0]);
  return {g.dy - probabilities * sum(g.dy, {g.as<AxisAttrs>().axis}, true)};
}
template <>
Grads gradient<Op::layer_norm>(G g) {
  const Tensor& x = g.x[0];
  const Tensor centred = x - mean(x, {-1}, true);
  const Tensor scale = rsqrt(mean(centred * centred, {-1}, true) + g.as<EpsAttrs>().eps);
  const Tensor normal = centred * scale;
  const Tensor dnormal = g.x[1] ? g.dy * g.x[1] : g.dy;
  const Tensor along_ones = mean(dnormal, {-1}, true);
  const Tensor along_normal = normal * mean(dnormal * normal, {-1}, true);
  return {scale * (dnormal - along_ones - along_normal), g.x[1] ? g.dy * normal : Tensor(), g.dy};
}
template <>
Grads gradient<Op::rms_norm>(G g) {
  const Tensor& x = g.x[0];
  const Tensor scale = rsqrt(mean(x * x, {-1}, true) + g.as<EpsAttrs>().eps);
  const Tensor normal = x * scale;
  const Tensor dnormal = g.x[1] ? g.dy * g.x[1] : g.dy;
  return {scale * (dnormal - normal * mean(dnormal * normal, {-1}, true)), g.x[1] ? g.dy * normal : Tensor()};
}
template <>
Grads gradient<Op::rope>(G g) {
  RopeAttrs attrs = g.as<RopeAttrs>();
  attrs.inverse = !attrs.inverse;
  return {rope(g.dy, maybe(g.x[1]), attrs), {}};
}
template <>
Grads gradient<Op::attention>(G g) {
  const auto& attrs = g.as<AttentionAttrs>();
  const Tensor &mask = g.x[3], &sinks = g.x[4];
  if (g.dys[1])
    throw GraphError("attention: its log-sum-exp cannot be differentiated" +
                     (g.node.site.empty() ? "" : " (" + g.node.site + ")"));
  const bool mask_grad = mask && is_float(mask.dtype()) && g.wanted[3];
  const Tensor& table = g.x[7];
  const DType dtype = g.x[0].dtype();
  const bool packed = g.x[1].dtype() == packed_cache;
  const Tensor k = unpacked(table ? unpaged(g.x[1], table) : g.x[1], dtype);
  const Tensor v = unpacked(table ? unpaged(g.x[2], table) : g.x[2], dtype);
  auto parts = apply(
      Op::attention_grad, {g.x[0], k, v, g.y[0], g.y[1], g.dy, maybe(mask), maybe(sinks), maybe(g.x[5]), maybe(g.x[6])},
      AttentionGradAttrs{attrs.scale, attrs.causal, attrs.window, attrs.soft_cap, attrs.ring, mask_grad});
  // An 8-bit cache has no gradient.
  for (const std::size_t i : {1, 2})
    parts[i] = packed ? Tensor() : table ? paged_gradient(parts[i], g.x[i], table) : parts[i];
  return {parts[0], parts[1], parts[2], mask_grad ? parts.back() : Tensor(), sinks ? parts[3] : Tensor(), {}, {}, {}};
}
template <>
Grads gradient<Op::linear_attention>(G g) {
  const Tensor &state = g.x[0], &beta = g.x[5], &positions = g.x[6], &slots = g.x[7];
  const Tensor& dnext = g.dys[0];
  const Tensor rows = state ? state_rows(state, slots) : Tensor();
  const Tensor dnext_rows = dnext ? state_rows(dnext, slots) : Tensor();
  const Tensor dy = g.dys[1] ? g.dys[1] : zeros_like(g.y[1]);
  const auto parts = apply(
      Op::linear_attention_grad,
      {maybe(rows), g.x[1], g.x[2], g.x[3], g.x[4], maybe(beta), maybe(positions), maybe(dnext_rows), dy}, NoAttrs{});
  Tensor dstate;
  if (state && g.wanted[0]) {
    // Rows of the state that belong to no sequence are in the next state unchanged.
    const Tensor others = !slots || dnext ? dnext : zeros_like(state);
    dstate = with_state_rows(others, slots, parts.back());
  }
  return {dstate, parts[0], parts[1], parts[2], parts[3], beta ? parts[4] : Tensor(), {}, {}};
}
template <>
Grads gradient<Op::cross_entropy>(G g) {
  const Tensor &logits = g.x[0], &targets = g.x[1], &mask = g.x[2];
  const double smoothing = g.as<CrossEntropyAttrs>().label_smoothing;
  const Tensor masked = mask ? g.dy * mask : g.dy;
  const Tensor dloss = where(targets < 0, 0, masked);
  const Dim classes = logits.dim(-1);
  Tensor wanted = one_hot(targets, classes, logits.dtype());
  if (smoothing > 0) wanted = (1 - smoothing) * wanted + smoothing / static_cast<double>(classes.value());
  Tensor dmask;
  if (mask && g.wanted[2]) dmask = g.dy * cross_entropy(logits, targets, {.label_smoothing = smoothing});
  const Tensor excess = softmax(logits) - wanted;
  return {excess * unsqueeze(dloss, {-1}), {}, dmask};
}

using Rule = Grads (*)(G);

constexpr auto rules = op_functions<Rule>([]<Op op>() -> Rule {
  if constexpr (columns_of<op>.gradient == Gradient::Rule) return &gradient<op>;
  return nullptr;
});

}  // namespace

Grads apply_gradient_rule(const GradContext& g) {
  Grads grads = rules[static_cast<std::size_t>(g.node.op)](g);
  if (mutated_gradient == g.node.op)
    for (Contribution& grad : grads)
      if (grad) grad.tensor = grad.tensor * 1.01;
  return grads;
}

}  // namespace jerboa::detail
