#include <algorithm>
#include <cmath>
#include <numeric>

#include <jerboa/ir/shapes.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/decompose.h>

#include "ir/op_functions.h"
#include "transform/attention_math.h"
#include "transform/recurrent_math.h"
#include "transform/rewrite.h"

namespace jerboa {
namespace {

using Inputs = std::vector<Tensor>;

// One specialisation for each row of the op table that says Decompose; a missing one is a compile error that names it.
template <Op op>
std::vector<Tensor> rewrite(const Node& node, const Inputs& in) = delete;

Dim count_along(const Shape& shape, const std::vector<int>& axes) {
  Dim count(1);
  for (const int axis : axes) count = count * shape[static_cast<std::size_t>(axis)];
  return count;
}

template <>
std::vector<Tensor> rewrite<Op::mean>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<ReduceAttrs>();
  const Dim count = count_along(in[0].shape(), axes_of(attrs.axes, in[0].rank()));
  const Tensor total = sum(in[0], attrs.axes, attrs.keepdims);
  if (count.is_constant()) return {total / static_cast<double>(std::max<std::int64_t>(count.value(), 1))};
  // A symbolic count is only known at run time: count ones.
  return {total / cast(sum(full({count}, 1, DType::i32)), in[0].dtype())};
}

// Only gradients use it; compiled graphs use the operand instead.
template <>
std::vector<Tensor> rewrite<Op::stop_gradient>(const Node&, const Inputs& in) {
  return {in[0]};
}

template <>
std::vector<Tensor> rewrite<Op::swap_axes>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<SwapAxesAttrs>();
  std::vector<int> perm;
  for (int axis = 0; axis < in[0].rank(); ++axis) perm.push_back(axis);
  std::swap(perm[static_cast<std::size_t>(axis_of(attrs.a, in[0].rank()))],
            perm[static_cast<std::size_t>(axis_of(attrs.b, in[0].rank()))]);
  return {transpose(in[0], perm)};
}

template <>
std::vector<Tensor> rewrite<Op::squeeze>(const Node& node, const Inputs& in) {
  const auto axes = axes_of(node.as<AxesAttrs>().axes, in[0].rank());
  Shape shape = in[0].shape();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) shape.erase(shape.begin() + *axis);
  return {reshape(in[0], shape)};
}
template <>
std::vector<Tensor> rewrite<Op::unsqueeze>(const Node& node, const Inputs& in) {
  const auto& given = node.as<AxesAttrs>().axes;
  Shape shape = in[0].shape();
  for (const int axis : axes_of(given, in[0].rank() + static_cast<int>(given.size())))
    shape.insert(shape.begin() + axis, Dim(1));
  return {reshape(in[0], shape)};
}

template <>
std::vector<Tensor> rewrite<Op::sum_to_shape>(const Node& node, const Inputs& in) {
  const Shape& shape = node.as<ShapeAttrs>().shape;
  const auto axes = broadcast_axes(shape, in[0].shape());
  if (axes.empty()) return {in[0]};
  // Leading axes that the shape does not have are removed first.
  const bool keep = static_cast<int>(shape.size() + axes.size()) != in[0].rank();
  const Tensor total = sum(in[0], axes, keep);
  return {total.shape() == shape ? total : reshape(total, shape)};
}

template <>
std::vector<Tensor> rewrite<Op::split>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<SplitAttrs>();
  std::vector<Tensor> parts;
  Dim start(0);
  for (const Dim& size : attrs.sizes) {
    parts.push_back(slice(in[0], attrs.axis, start, start + size));
    start = start + size;
  }
  return parts;
}

template <>
std::vector<Tensor> rewrite<Op::conv1d>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<Conv1dAttrs>();
  const Conv2dAttrs flat{{1, attrs.stride}, {0, attrs.padding}, {1, attrs.dilation}, attrs.groups};
  const Operand bias = in[2] ? Operand(in[2]) : Operand();
  const Tensor x = unsqueeze(in[0], {2});
  const Tensor weight = unsqueeze(in[1], {2});
  return {squeeze(conv2d(x, weight, bias, flat), {2})};
}

// The mask [time, keys] of s <= t.
Tensor causal_mask(const Tensor& x) {
  const Tensor keys = arange(x.dim(-1));
  return keys <= unsqueeze(arange(x.dim(-2)), {1});
}

template <>
std::vector<Tensor> rewrite<Op::where_causal>(const Node& node, const Inputs& in) {
  return {where(causal_mask(in[0]), in[0], node.as<FillAttrs>().fill)};
}

template <>
std::vector<Tensor> rewrite<Op::causal_softmax>(const Node&, const Inputs& in) {
  const Tensor mask = causal_mask(in[0]);
  return {where(mask, softmax(where(mask, in[0], detail::lowest_score_of(in[0].dtype()))), 0)};
}

template <>
std::vector<Tensor> rewrite<Op::attention_weights>(const Node& node, const Inputs& in) {
  const Tensor straight = in[6] ? detail::unpaged(in[1], in[6]) : in[1];
  const Tensor k = detail::unpacked(straight, in[0].dtype());
  const auto probabilities =
      detail::attention_probabilities({in[0], k, in[2], in[3], in[4], in[5]}, node.as<AttentionAttrs>());
  return {detail::ungroup_heads(probabilities.weights)};
}

template <>
std::vector<Tensor> rewrite<Op::attention_grad>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<AttentionGradAttrs>();
  const Tensor &k = in[1], &v = in[2], &dout = in[5], &mask = in[6], &sinks = in[7];
  const auto p = detail::attention_probabilities({in[0], k, mask, sinks, in[8], in[9]},
                                                 {attrs.scale, attrs.causal, attrs.window, attrs.soft_cap, attrs.ring});
  const double scale = attrs.scale != 0 ? attrs.scale : 1 / std::sqrt(static_cast<double>(in[0].dim(3).value()));
  const Dim key_heads = k.dim(1);
  const Tensor dy = detail::group_heads(dout, key_heads);
  const Tensor dp = matmul(dy, unsqueeze(v, {2}), {.transpose_b = true});
  const Tensor row = sum(dp * p.weights, {-1}, true);
  const Tensor dscores = p.weights * (dp - row);
  const Tensor dproduct = (p.cap_slope ? dscores * p.cap_slope : dscores) * scale;
  const Tensor dq = matmul(dproduct, p.key);
  const Tensor dk = sum(matmul(dproduct, p.query, {.transpose_a = true}), {2});
  const Tensor dv = sum(matmul(p.weights, dy, {.transpose_a = true}), {2});
  std::vector<Tensor> grads{detail::ungroup_heads(dq), dk, dv};
  if (sinks) grads.push_back(reshape(sum(-(p.sink_weights * row), {0, 3, 4}), sinks.shape()));
  if (attrs.mask_grad) grads.push_back(sum_to_shape(detail::ungroup_heads(dscores), mask.shape()));
  return grads;
}

template <>
std::vector<Tensor> rewrite<Op::causal_conv1d>(const Node&, const Inputs& in) {
  return detail::causal_conv1d_in_ops({in[0], in[1], in[2], in[3], in[4]});
}

template <>
std::vector<Tensor> rewrite<Op::swiglu>(const Node&, const Inputs& in) {
  return {silu(in[0]) * in[1]};
}
template <>
std::vector<Tensor> rewrite<Op::geglu>(const Node& node, const Inputs& in) {
  return {gelu(in[0], node.as<GeluAttrs>().approximate) * in[1]};
}

template <>
std::vector<Tensor> rewrite<Op::adam_update>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<AdamAttrs>();
  const Tensor &param = in[0], &grad = in[1], &lr = in[4];
  const Tensor kept_m = attrs.beta1 * in[2];
  const Tensor m = kept_m + (1 - attrs.beta1) * grad;
  const Tensor kept_v = attrs.beta2 * in[3];
  const Tensor v = kept_v + (1 - attrs.beta2) * (grad * grad);
  // 1 - beta^step by expm1: exact at every step, whereas the difference would lose digits in the first steps.
  const Tensor step = cast(in[5], lr.dtype());
  const Tensor correction1 = -expm1(step * std::log(attrs.beta1));
  const Tensor correction2 = -expm1(step * std::log(attrs.beta2));
  const Tensor rate = lr / correction1;
  const Tensor root = sqrt(v);
  const Tensor change = m / (root * rsqrt(correction2) + attrs.eps);
  const Tensor kept = attrs.weight_decay == 0 ? param : param * (1 - lr * attrs.weight_decay);
  return {kept - rate * change, m, v};
}

template <>
std::vector<Tensor> rewrite<Op::sgd_update>(const Node& node, const Inputs& in) {
  const auto& attrs = node.as<SgdAttrs>();
  const Tensor &param = in[0], &lr = in[2];
  const Tensor grad = attrs.weight_decay == 0 ? in[1] : in[1] + attrs.weight_decay * param;
  if (!in[3]) return {param - lr * grad};
  const Tensor velocity = attrs.momentum * in[3] + grad;
  const Tensor direction = attrs.nesterov ? grad + attrs.momentum * velocity : velocity;
  return {param - lr * direction, velocity};
}

using Rewrite = std::vector<Tensor> (*)(const Node&, const Inputs&);

constexpr auto rewrites = detail::op_functions<Rewrite>([]<Op op>() -> Rewrite {
  if constexpr (detail::columns_of<op>.lowering == Lowering::Decompose ||
                detail::columns_of<op>.gradient == Gradient::Decompose)
    return &rewrite<op>;
  return nullptr;
});

}  // namespace

std::vector<Tensor> decomposition(const Node& node, const std::vector<Tensor>& inputs) {
  return rewrites[static_cast<std::size_t>(node.op)](node, inputs);
}

namespace {

bool decomposes(const Node& node) { return info(node.op).lowering == Lowering::Decompose; }

Graph decompose_once(const Graph& graph, std::vector<TensorId>& moved) {
  Graph result;
  trace_into(result, [&] {
    Graph& out = current_graph("decompose");
    detail::GraphRewriter rewriter(graph, out);
    for (const Node& node : graph.nodes) {
      if (!decomposes(node)) {
        rewriter.copy(node);
        continue;
      }
      const SiteScope scope(node.site);
      const std::size_t before = out.tensors.size();
      std::vector<Tensor> inputs;
      for (const TensorId id : node.inputs) inputs.emplace_back(out.identity(), rewriter.at(id));
      std::vector<TensorId> made;
      for (const Tensor& tensor : decomposition(node, inputs)) made.push_back(tensor.id());
      rewriter.replace(node, made, before);
    }
    rewriter.finish();
    moved = rewriter.take_map();
  });
  return result;
}

}  // namespace

Graph decompose(Graph graph, std::vector<TensorId>* moved) {
  std::vector<TensorId> total(graph.tensors.size());
  std::iota(total.begin(), total.end(), 0);
  while (std::any_of(graph.nodes.begin(), graph.nodes.end(), decomposes)) {
    std::vector<TensorId> step;
    graph = decompose_once(graph, step);
    for (TensorId& id : total) id = step[static_cast<std::size_t>(id)];
  }
  if (moved != nullptr) *moved = std::move(total);
  return graph;
}

}  // namespace jerboa
