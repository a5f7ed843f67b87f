#include "ir/shape_rules.h"

// Rules for matrix products, convolutions and pooling.
namespace jerboa::shape_rule {
namespace {

void want_pair(const Call& call, const std::vector<int>& values, int least, const char* what) {
  if (values.size() != 2 || values[0] < least || values[1] < least)
    call.fail("{} must be two numbers of at least {}", what, least);
}

template <class A>
void check_conv(const Call& call, const A& attrs, int rank = 4) {
  call.want_rank(0, rank);
  call.want_rank(1, rank);
  call.want_float(0);
  call.want_same_dtype(0, 1);
  want_pair(call, attrs.stride, 1, "stride");
  want_pair(call, attrs.padding, 0, "padding");
  want_pair(call, attrs.dilation, 1, "dilation");
  if (attrs.groups < 1) call.fail("groups must be at least 1, not {}", attrs.groups);
}

Dim windows(const Call& call, const Dim& size, const Dim& kernel, int stride, int padding, int dilation) {
  const Dim span = (kernel - Dim(1)) * Dim(dilation) + Dim(1);
  const Dim room = size + Dim(std::int64_t{2} * padding) - span;
  if (room.lower_bound() < 0)
    call.fail("a window of {} does not fit a size of {} padded by {}", span.str(), size.str(), padding);
  return floor_divide(room, stride) + Dim(1);
}

template <class A>
Shape conv_output(const Call& call, const A& attrs, const Shape& x, const Shape& weight) {
  if (!(x[1] == weight[1] * Dim(attrs.groups)))
    call.fail("input {} has {} channels, weight {} with {} groups takes {}", to_string(x), x[1].str(),
              to_string(weight), attrs.groups, (weight[1] * Dim(attrs.groups)).str());
  if (!divide_exactly(weight[0], Dim(attrs.groups)))
    call.fail("{} output channels do not divide into {} groups", weight[0].str(), attrs.groups);
  return {x[0], weight[0], windows(call, x[2], weight[2], attrs.stride[0], attrs.padding[0], attrs.dilation[0]),
          windows(call, x[3], weight[3], attrs.stride[1], attrs.padding[1], attrs.dilation[1])};
}

void check_bias(const Call& call) {
  if (!call.has(2)) return;
  call.want_same_dtype(0, 2);
  if (call.shape(2) != Shape{call.shape(1)[0]})
    call.fail("bias {} does not match {} output channels", to_string(call.shape(2)), call.shape(1)[0].str());
}

template <class A>
Shape pool_output(const Call& call, const A& attrs, const Shape& x) {
  want_pair(call, attrs.kernel, 1, "kernel");
  want_pair(call, attrs.stride, 1, "stride");
  want_pair(call, attrs.padding, 0, "padding");
  // Attributes may come from a file and hold any numbers.
  const auto is_more_than_half = [](std::int64_t padding, int kernel) { return 2 * padding > kernel; };
  if (is_more_than_half(attrs.padding[0], attrs.kernel[0]) || is_more_than_half(attrs.padding[1], attrs.kernel[1]))
    call.fail("padding must be at most half the kernel");
  return {x[0], x[1], windows(call, x[2], attrs.kernel[0], attrs.stride[0], attrs.padding[0], 1),
          windows(call, x[3], attrs.kernel[1], attrs.stride[1], attrs.padding[1], 1)};
}

}  // namespace

Types matmul(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  call.want_float(0);
  call.want_same_dtype(0, 1);
  call.want_rank_at_least(0, 2);
  call.want_rank_at_least(1, 2);
  Shape a = call.shape(0), b = call.shape(1);
  if (attrs.transpose_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (attrs.transpose_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const Dim rows = a[a.size() - 2], inner = a.back(), columns = b.back();
  if (!(inner == b[b.size() - 2]))
    call.fail("{} x {}: inner sizes {} and {} differ", to_string(a), to_string(b), inner.str(), b[b.size() - 2].str());
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  auto shape = broadcast(a, b);
  if (!shape)
    call.fail("{} x {}: the leading sizes do not broadcast", to_string(call.shape(0)), to_string(call.shape(1)));
  shape->push_back(rows);
  shape->push_back(columns);
  return {{call.in(0).dtype, *shape}};
}

namespace {

// Checks an int8 or int4 weight, followed by one scale and possibly one minimum per group of a row.
void want_quantised(const Call& call, std::size_t weight) {
  const std::size_t scales = weight + 1, mins = weight + 2;
  call.want_rank_at_least(weight, 2);
  call.want_rank(scales, static_cast<int>(call.shape(weight).size()));
  call.want_float(scales);
  const DType dtype = call.in(weight).dtype;
  if (dtype != DType::i8 && dtype != DType::i4) call.fail("weight must be int8 or int4, not {}", name(dtype));
  const Shape &w = call.shape(weight), &s = call.shape(scales);
  if (!std::equal(w.begin(), w.end() - 1, s.begin()) || !(w.back() == s.back() * Dim(quantised_group)))
    call.fail("scales of {} do not match a weight of {}: every {} values of a row share one", to_string(s),
              to_string(w), quantised_group);
  if (!call.has(mins)) return;
  call.want_same_dtype(scales, mins);
  if (call.shape(mins) != s)
    call.fail("mins of {} do not match scales of {}", to_string(call.shape(mins)), to_string(s));
}

}  // namespace

Types matmul_quantised(const Call& call) {
  call.want_float(0);
  call.want_rank_at_least(0, 2);
  call.want_rank(1, 2);
  want_quantised(call, 1);
  Shape shape = call.shape(0);
  if (!(shape.back() == call.shape(1)[1]))
    call.fail("{} x {}: inner sizes {} and {} differ", to_string(shape), to_string(call.shape(1)), shape.back().str(),
              call.shape(1)[1].str());
  shape.back() = call.shape(1)[0];
  return {{call.in(0).dtype, shape}};
}

Types dequantise(const Call& call) {
  want_quantised(call, 0);
  return {{call.in(1).dtype, call.shape(0)}};
}

Types embedding_quantised(const Call& call) {
  call.want_rank(0, 2);
  want_quantised(call, 0);
  call.want_integer(3);
  Shape shape = call.shape(3);
  shape.push_back(call.shape(0)[1]);
  return {{call.in(1).dtype, shape}};
}

namespace {

// Checks operand 0 as groups of rows, each multiplied by a matrix [inner, columns] of operand 1.
void want_groups(const Call& call, std::size_t offsets, const Dim& inner) {
  const Shape &x = call.shape(0), &w = call.shape(1);
  call.want_integer(offsets);
  if (!(x[1] == inner))
    call.fail("{} x {}: inner sizes {} and {} differ", to_string(x), to_string(w), x[1].str(), inner.str());
  if (!(call.shape(offsets)[0] == w[0] + Dim(1)))
    call.fail("{} groups need {} offsets, not {}", w[0].str(), (w[0] + Dim(1)).str(), call.shape(offsets)[0].str());
}

}  // namespace

Types matmul_grouped(const Call& call) {
  const bool transposed = call.as<GroupedAttrs>().transpose_b;
  call.want_rank(0, 2);
  call.want_rank(1, 3);
  call.want_rank(2, 1);
  call.want_float(0);
  call.want_same_dtype(0, 1);
  const Shape& w = call.shape(1);
  want_groups(call, 2, transposed ? w[2] : w[1]);
  return {{call.in(0).dtype, {call.shape(0)[0], transposed ? w[1] : w[2]}}};
}

Types matmul_grouped_quantised(const Call& call) {
  call.want_rank(0, 2);
  call.want_rank(1, 3);
  call.want_rank(4, 1);
  call.want_float(0);
  want_quantised(call, 1);
  const Shape& w = call.shape(1);
  want_groups(call, 4, w[2]);
  return {{call.in(0).dtype, {call.shape(0)[0], w[1]}}};
}

Types matmul_grouped_weight_grad(const Call& call) {
  call.want_rank(0, 2);
  call.want_rank(1, 2);
  call.want_rank(2, 1);
  call.want_float(0);
  call.want_same_dtype(0, 1);
  call.want_integer(2);
  if (!(call.shape(0)[0] == call.shape(1)[0]))
    call.fail("x {} and dy {} must have the same number of rows", to_string(call.shape(0)), to_string(call.shape(1)));
  return {{call.in(0).dtype, {call.shape(2)[0] - Dim(1), call.shape(0)[1], call.shape(1)[1]}}};
}

Types conv1d(const Call& call) {
  const auto& given = call.as<Conv1dAttrs>();
  const Conv2dAttrs attrs{{1, given.stride}, {0, given.padding}, {1, given.dilation}, given.groups};
  check_conv(call, attrs, 3);
  check_bias(call);
  const Shape &x = call.shape(0), &weight = call.shape(1);
  const Shape out = conv_output(call, attrs, {x[0], x[1], 1, x[2]}, {weight[0], weight[1], 1, weight[2]});
  return {{call.in(0).dtype, {out[0], out[1], out[3]}}};
}

Types conv2d(const Call& call) {
  const auto& attrs = call.as<Conv2dAttrs>();
  check_conv(call, attrs);
  check_bias(call);
  return {{call.in(0).dtype, conv_output(call, attrs, call.shape(0), call.shape(1))}};
}

Types conv2d_input_grad(const Call& call) {
  const auto& attrs = call.as<Conv2dGradAttrs>();
  check_conv(call, attrs);
  if (attrs.size.size() != 2) call.fail("size must be the input's height and width");
  const Shape &dy = call.shape(0), &weight = call.shape(1);
  const Shape x{dy[0], weight[1] * Dim(attrs.groups), attrs.size[0], attrs.size[1]};
  if (conv_output(call, attrs, x, weight) != dy)
    call.fail("an input {} under weight {} does not give {}", to_string(x), to_string(weight), to_string(dy));
  return {{call.in(0).dtype, x}};
}

Types conv2d_weight_grad(const Call& call) {
  const auto& attrs = call.as<Conv2dGradAttrs>();
  check_conv(call, attrs);
  if (attrs.size.size() != 2) call.fail("size must be the kernel's height and width");
  const Shape &x = call.shape(0), &dy = call.shape(1);
  const auto channels = divide_exactly(x[1], Dim(attrs.groups));
  if (!channels) call.fail("{} input channels do not divide into {} groups", x[1].str(), attrs.groups);
  const Shape weight{dy[1], *channels, attrs.size[0], attrs.size[1]};
  if (conv_output(call, attrs, x, weight) != dy)
    call.fail("an input {} under weight {} does not give {}", to_string(x), to_string(weight), to_string(dy));
  return {{call.in(0).dtype, weight}};
}

Types pool2d(const Call& call) {
  call.want_rank(0, 4);
  call.want_float(0);
  return {{call.in(0).dtype, pool_output(call, call.as<PoolAttrs>(), call.shape(0))}};
}

Types max_pool2d_grad(const Call& call) {
  call.want_rank(0, 4);
  call.want_float(0);
  call.want_same_dtype(0, 1);
  if (pool_output(call, call.as<PoolGradAttrs>(), call.shape(0)) != call.shape(1))
    call.fail("x {} does not pool to dy {}", to_string(call.shape(0)), to_string(call.shape(1)));
  return {call.in(0)};
}

Types avg_pool2d_grad(const Call& call) {
  const auto& attrs = call.as<PoolGradAttrs>();
  call.want_rank(0, 4);
  call.want_float(0);
  if (attrs.size.size() != 2) call.fail("size must be the input's height and width");
  const Shape x{call.shape(0)[0], call.shape(0)[1], attrs.size[0], attrs.size[1]};
  if (pool_output(call, attrs, x) != call.shape(0))
    call.fail("x {} does not pool to dy {}", to_string(x), to_string(call.shape(0)));
  return {{call.in(0).dtype, x}};
}

}  // namespace jerboa::shape_rule
