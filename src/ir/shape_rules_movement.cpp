#include <algorithm>

#include "ir/shape_rules.h"

// Rules for the ops that reduce, sort, move or index elements.
namespace jerboa::shape_rule {
namespace {

Shape without(const Shape& shape, const std::vector<int>& axes, bool keepdims) {
  Shape result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int>(i)) != axes.end();
    if (!reduced)
      result.push_back(shape[i]);
    else if (keepdims)
      result.emplace_back(1);
  }
  return result;
}

Types reduce(const Call& call) {
  const auto& attrs = call.as<ReduceAttrs>();
  const auto axes = resolve_axes(attrs.axes, call.rank(0));
  if (!axes)
    call.fail("axes {} are out of range or repeated for {}", fmt::join(attrs.axes, ", "), to_string(call.shape(0)));
  return {{call.in(0).dtype, without(call.shape(0), *axes, attrs.keepdims)}};
}

// Checks that sizes are equal on every axis but one.
void want_same_but(const Call& call, std::size_t i, std::size_t j, std::size_t axis) {
  bool same = call.rank(i) == call.rank(j);
  for (std::size_t d = 0; same && d < call.shape(i).size(); ++d)
    same = d == axis || call.shape(i)[d] == call.shape(j)[d];
  if (!same)
    call.fail("{} and {} must agree on every axis but {}", to_string(call.shape(i)), to_string(call.shape(j)), axis);
}

}  // namespace

Types reduce_numeric(const Call& call) {
  if (!is_numeric(call.in(0).dtype)) call.fail("{} tensors have no arithmetic; cast them", name(call.in(0).dtype));
  return reduce(call);
}

Types reduce_float(const Call& call) {
  call.want_float(0);
  return reduce(call);
}

Types argmax(const Call& call) {
  const auto& attrs = call.as<ArgmaxAttrs>();
  return {{DType::i32, without(call.shape(0), {call.axis(attrs.axis)}, attrs.keepdims)}};
}

Types all_finite(const Call& call) {
  call.want_float(0);
  return {{DType::boolean, {}}};
}

Types sum_squares(const Call& call) {
  for (std::size_t i = 0; i < call.inputs.size(); ++i) call.want_float(i);
  return {{DType::f32, {}}};
}

Types cumsum(const Call& call) {
  if (!is_numeric(call.in(0).dtype)) call.fail("{} tensors have no arithmetic; cast them", name(call.in(0).dtype));
  call.axis(call.as<CumsumAttrs>().axis);
  return {call.in(0)};
}

Types cummax(const Call& call) {
  Types types = cumsum(call);
  types.push_back({DType::i32, call.shape(0)});
  return types;
}

Types top_k(const Call& call) {
  const auto& attrs = call.as<TopKAttrs>();
  Shape shape = call.shape(0);
  Dim& size = shape[call.uaxis(attrs.axis)];
  if (attrs.k < 1 || size.lower_bound() < attrs.k) call.fail("k = {} does not fit a size of {}", attrs.k, size.str());
  size = attrs.k;
  return {{call.in(0).dtype, shape}, {DType::i32, shape}};
}

Types argsort(const Call& call) {
  call.axis(call.as<ArgsortAttrs>().axis);
  return {{DType::i32, call.shape(0)}};
}

Types reshape(const Call& call) {
  Shape shape = call.as<ShapeAttrs>().shape;
  const auto open = std::count(shape.begin(), shape.end(), Dim(-1));
  const Dim have = element_count(call.shape(0));
  if (open > 1) call.fail("only one size of {} may be -1", to_string(shape));
  if (open == 1) {
    Dim known(1);
    for (const Dim& dim : shape)
      if (!(dim == Dim(-1))) known = known * dim;
    const auto rest = divide_exactly(have, known);
    if (!rest) call.fail("{} does not divide into {}", to_string(call.shape(0)), to_string(shape));
    *std::find(shape.begin(), shape.end(), Dim(-1)) = *rest;
  }
  if (!(element_count(shape) == have))
    call.fail("{} has {} elements, {} has {}", to_string(call.shape(0)), have.str(), to_string(shape),
              element_count(shape).str());
  return {{call.in(0).dtype, shape}};
}

Types transpose(const Call& call) {
  const auto& perm = call.as<TransposeAttrs>().perm;
  const auto axes = resolve_axes(perm, call.rank(0));
  if (static_cast<int>(perm.size()) != call.rank(0) || !axes)
    call.fail("[{}] is not a permutation of the axes of {}", fmt::join(perm, ", "), to_string(call.shape(0)));
  Shape shape;
  for (const int axis : perm) shape.push_back(call.shape(0)[call.uaxis(axis)]);
  return {{call.in(0).dtype, shape}};
}

Types swap_axes(const Call& call) {
  const auto& attrs = call.as<SwapAxesAttrs>();
  Shape shape = call.shape(0);
  std::swap(shape[call.uaxis(attrs.a)], shape[call.uaxis(attrs.b)]);
  return {{call.in(0).dtype, shape}};
}

Types squeeze(const Call& call) {
  const auto& attrs = call.as<AxesAttrs>();
  const auto axes = resolve_axes(attrs.axes, call.rank(0));
  if (!axes || attrs.axes.empty())
    call.fail("axes [{}] are out of range or repeated for {}", fmt::join(attrs.axes, ", "), to_string(call.shape(0)));
  for (const int axis : *axes)
    if (!(call.shape(0)[static_cast<std::size_t>(axis)] == Dim(1)))
      call.fail("axis {} of {} is not of size 1", axis, to_string(call.shape(0)));
  return {{call.in(0).dtype, without(call.shape(0), *axes, false)}};
}

Types unsqueeze(const Call& call) {
  const auto& attrs = call.as<AxesAttrs>();
  const auto axes = resolve_axes(attrs.axes, call.rank(0) + static_cast<int>(attrs.axes.size()));
  if (!axes || attrs.axes.empty())
    call.fail("axes [{}] are out of range or repeated for {}", fmt::join(attrs.axes, ", "), to_string(call.shape(0)));
  Shape shape = call.shape(0);
  for (const int axis : *axes) shape.insert(shape.begin() + axis, Dim(1));
  return {{call.in(0).dtype, shape}};
}

Types broadcast_to(const Call& call) {
  const Shape& shape = call.as<ShapeAttrs>().shape;
  if (!broadcasts_to(call.shape(0), shape))
    call.fail("{} does not broadcast to {}", to_string(call.shape(0)), to_string(shape));
  return {{call.in(0).dtype, shape}};
}

Types sum_to_shape(const Call& call) {
  const Shape& shape = call.as<ShapeAttrs>().shape;
  if (!broadcasts_to(shape, call.shape(0)))
    call.fail("{} is not a broadcast of {}", to_string(call.shape(0)), to_string(shape));
  return {{call.in(0).dtype, shape}};
}

Types slice(const Call& call) {
  const auto& attrs = call.as<SliceAttrs>();
  const std::size_t axis = call.uaxis(attrs.axis);
  const auto range = resolve_slice(attrs, call.shape(0));
  if (!range)
    call.fail("{} to {} step {} is not a range of axis {} of {}", attrs.start.str(), attrs.end.str(), attrs.step, axis,
              to_string(call.shape(0)));
  Shape shape = call.shape(0);
  shape[axis] = range->length;
  return {{call.in(0).dtype, shape}};
}

Types concat(const Call& call) {
  const std::size_t axis = call.uaxis(call.as<AxisAttrs>().axis);
  Shape shape = call.shape(0);
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    call.want_same_dtype(0, i);
    want_same_but(call, 0, i, axis);
    shape[axis] = shape[axis] + call.shape(i)[axis];
  }
  return {{call.in(0).dtype, shape}};
}

Types split(const Call& call) {
  const auto& attrs = call.as<SplitAttrs>();
  const std::size_t axis = call.uaxis(attrs.axis);
  Types types;
  Dim total(0);
  for (const Dim& size : attrs.sizes) {
    Shape shape = call.shape(0);
    shape[axis] = size;
    total = total + size;
    types.push_back({call.in(0).dtype, shape});
  }
  if (types.empty() || !(total == call.shape(0)[axis]))
    call.fail("parts {} do not add up to axis {} of {}", to_string(attrs.sizes), axis, to_string(call.shape(0)));
  return types;
}

Types pad(const Call& call) {
  const auto& attrs = call.as<PadAttrs>();
  Shape shape = call.shape(0);
  if (attrs.before.size() != shape.size() || attrs.after.size() != shape.size())
    call.fail("{} needs one number before and after for each of its axes", to_string(shape));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (attrs.before[i].lower_bound() < 0 || attrs.after[i].lower_bound() < 0)
      call.fail("padding must not be negative; slice instead");
    shape[i] = attrs.before[i] + shape[i] + attrs.after[i];
  }
  return {{call.in(0).dtype, shape}};
}

Types embedding(const Call& call) {
  call.want_rank(0, 2);
  call.want_integer(1);
  Shape shape = call.shape(1);
  shape.push_back(call.shape(0)[1]);
  return {{call.in(0).dtype, shape}};
}

Types embedding_grad(const Call& call) {
  call.want_integer(0);
  call.want_float(1);
  Shape leading = call.shape(1);
  if (leading.empty()) call.fail("dy must have at least one axis");
  leading.pop_back();
  if (leading != call.shape(0))
    call.fail("ids {} and dy {} do not match", to_string(call.shape(0)), to_string(call.shape(1)));
  return {{call.in(1).dtype, {call.as<EmbeddingGradAttrs>().rows, call.shape(1).back()}}};
}

Types take_along_axis(const Call& call) {
  const std::size_t axis = call.uaxis(call.as<AxisAttrs>().axis);
  call.want_integer(1);
  want_same_but(call, 0, 1, axis);
  return {{call.in(0).dtype, call.shape(1)}};
}

Types scatter(const Call& call) {
  const std::size_t axis = call.uaxis(call.as<AxisAttrs>().axis);
  call.want_integer(1);
  call.want_same_dtype(0, 2);
  want_same_but(call, 0, 1, axis);
  if (call.shape(1) != call.shape(2))
    call.fail("indices {} and updates {} differ in shape", to_string(call.shape(1)), to_string(call.shape(2)));
  return {call.in(0)};
}

Types one_hot(const Call& call) {
  const auto& attrs = call.as<OneHotAttrs>();
  call.want_integer(0);
  if (!is_numeric(attrs.dtype)) call.fail("the type must be numeric, not {}", name(attrs.dtype));
  Shape shape = call.shape(0);
  shape.push_back(attrs.depth);
  return {{attrs.dtype, shape}};
}

}  // namespace jerboa::shape_rule
