#include "lower/expand.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include <jerboa/ir/rope.h>
#include <jerboa/ir/shapes.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/cleanup.h>
#include <jerboa/transform/decompose.h>

#include "transform/rewrite.h"

namespace jerboa::detail {
namespace {

using Inputs = std::vector<Tensor>;

// Tensors that several expansions share.
struct Shared {
  std::map<std::string, Tensor> frequencies;
};

// One specialisation for each row of the op table that says Template; a missing one is a compile error that names it.
template <Op op>
Tensor expansion(const Node& node, const Inputs& in, Shared& shared) = delete;

template <>
Tensor expansion<Op::softmax>(const Node& node, const Inputs& in, Shared&) {
  const int axis = node.as<AxisAttrs>().axis;
  const Tensor exponentials = exp(in[0] - max(in[0], {axis}, true));
  return exponentials / sum(exponentials, {axis}, true);
}

template <>
Tensor expansion<Op::log_softmax>(const Node& node, const Inputs& in, Shared&) {
  const int axis = node.as<AxisAttrs>().axis;
  const Tensor shifted = in[0] - max(in[0], {axis}, true);
  return shifted - log(sum(exp(shifted), {axis}, true));
}

template <>
Tensor expansion<Op::layer_norm>(const Node& node, const Inputs& in, Shared&) {
  const Tensor centred = in[0] - mean(in[0], {-1}, true);
  const Tensor scale = rsqrt(mean(centred * centred, {-1}, true) + node.as<EpsAttrs>().eps);
  Tensor result = centred * scale;
  if (in[1]) result = result * in[1];
  if (in[2]) result = result + in[2];
  return result;
}

template <>
Tensor expansion<Op::rms_norm>(const Node& node, const Inputs& in, Shared&) {
  const Tensor scale = rsqrt(mean(in[0] * in[0], {-1}, true) + node.as<EpsAttrs>().eps);
  const Tensor result = in[0] * scale;
  return in[1] ? result * in[1] : result;
}

template <>
Tensor expansion<Op::cross_entropy>(const Node& node, const Inputs& in, Shared&) {
  const Tensor &logits = in[0], &targets = in[1], &mask = in[2];
  const double smoothing = node.as<CrossEntropyAttrs>().label_smoothing;
  const Tensor shifted = logits - max(logits, {-1}, true);
  const Tensor spread = log(sum(exp(shifted), {-1}));
  const Tensor at_target = equal(arange(logits.dim(-1), targets.dtype()), unsqueeze(targets, {-1}));
  Tensor loss = spread - sum(where(at_target, shifted, 0), {-1});
  if (smoothing > 0) loss = (1 - smoothing) * loss + smoothing * (spread - mean(shifted, {-1}));
  loss = where(targets < 0, 0, loss);
  return mask ? loss * mask : loss;
}

template <>
Tensor expansion<Op::rope>(const Node& node, const Inputs& in, Shared& shared) {
  const auto& attrs = node.as<RopeAttrs>();
  const Tensor& x = in[0];
  const std::int64_t size = x.dim(3).value();
  const RopeTable table = rope_table(attrs, size);
  const auto half = static_cast<std::int64_t>(table.frequencies.size());
  Tensor& frequencies = shared.frequencies[attrs_to_json(node.attrs) + std::to_string(size)];
  if (!frequencies) {
    const std::vector<float> values(table.frequencies.begin(), table.frequencies.end());
    frequencies = constant(HostTensor({half}, std::span<const float>(values)));
  }
  const Tensor positions =
      in[1] ? reshape(in[1], {in[1].dim(0), 1, x.dim(2), 1}) : reshape(arange(x.dim(2)), {1, 1, x.dim(2), 1});
  const Tensor angle = cast(positions, DType::f32) * frequencies;
  const Tensor cosine = cast(cos(angle) * table.magnitude, x.dtype());
  const Tensor sine = cast(sin(angle) * (attrs.inverse ? -table.magnitude : table.magnitude), x.dtype());
  std::vector<Operand> parts;
  if (attrs.interleaved) {
    const Tensor even = slice(x, 3, 0, 2 * half, 2), odd = slice(x, 3, 1, 2 * half, 2);
    const Tensor pairs =
        concat({unsqueeze(even * cosine - odd * sine, {-1}), unsqueeze(odd * cosine + even * sine, {-1})}, -1);
    parts.emplace_back(reshape(pairs, {x.dim(0), x.dim(1), x.dim(2), 2 * half}));
    if (2 * half == size) return parts[0].tensor();
  } else {
    const Tensor low = slice(x, 3, 0, half), high = slice(x, 3, half, 2 * half);
    parts.emplace_back(low * cosine - high * sine);
    parts.emplace_back(high * cosine + low * sine);
  }
  if (2 * half < size) parts.emplace_back(slice(x, 3, 2 * half, size));
  return concat(parts, 3);
}

// An activation that is computed again, written with what its slope computes too.
template <>
Tensor expansion<Op::gelu>(const Node& node, const Inputs& in, Shared&) {
  const Tensor& x = in[0];
  if (node.as<GeluAttrs>().approximate == GeluForm::none) return x * (0.5 * (1 + erf(x / std::numbers::sqrt2)));
  const double c = std::sqrt(2 / std::numbers::pi), k = 0.044715;
  return x * (0.5 * (1 + tanh(c * (x + k * (x * x * x)))));
}

template <>
Tensor expansion<Op::silu>(const Node&, const Inputs& in, Shared&) {
  return in[0] * sigmoid(in[0]);
}

using Expansion = Tensor (*)(const Node&, const Inputs&, Shared&);

template <Op op, bool wanted>
constexpr Expansion entry() {
  if constexpr (wanted)
    return &expansion<op>;
  else
    return nullptr;
}

constexpr Expansion expansions[] = {
#define OP(name, operands, attrs, rule, lowering, gradient, doc) \
  entry<Op::name, Lowering::lowering == Lowering::Template>(),
#include <jerboa/ir/ops.def>
#undef OP
};

Graph expand_templates(const Graph& graph) {
  Graph result;
  trace_into(result, [&] {
    Graph& out = current_graph("expand");
    Shared shared;
    GraphRewriter rewriter(graph, out);
    for (const Node& node : graph.nodes) {
      Expansion rule = expansions[static_cast<std::size_t>(node.op)];
      if (node.recompute && node.op == Op::gelu) rule = &expansion<Op::gelu>;
      if (node.recompute && node.op == Op::silu) rule = &expansion<Op::silu>;
      if (rule == nullptr) {
        rewriter.copy(node);
        continue;
      }
      const SiteScope scope(node.site);
      const std::size_t before = out.tensors.size();
      Inputs inputs;
      for (const TensorId id : node.inputs) inputs.emplace_back(out.identity(), rewriter.at(id));
      rewriter.replace(node, {rule(node, inputs, shared).id()}, before);
    }
    rewriter.finish();
  });
  return result;
}

// A tied parameter is the one it is tied to, so that reads and writes of their one memory are seen as such.
Graph resolve_ties(const Graph& graph) {
  Graph result;
  GraphRewriter rewriter(graph, result);
  const auto tied_to = [&](const Node& node) { return graph.tensor(node.outputs[0]).tied_to; };
  // Parameters first: one may stand before that which it is tied to.
  for (const bool tied : {false, true})
    for (const Node& node : graph.nodes) {
      if (node.op != Op::param_input || tied_to(node).empty() == tied) continue;
      const TensorId other = tied ? result.find(tied_to(node)) : no_tensor;
      if (other == no_tensor)
        rewriter.copy(node);
      else
        rewriter.replace(node, {other}, result.tensors.size());
    }
  for (const Node& node : graph.nodes)
    if (node.op != Op::param_input) rewriter.copy(node);
  rewriter.finish();
  return result;
}

// What is given back of a parameter or state that this graph updates is its old version, so it is copied in time.
Graph save_old_versions(Graph graph) {
  const auto is_updated = [&](TensorId id) {
    while (info(graph.producer(id).op).lowering == Lowering::View) id = graph.producer(id).inputs[0];
    return std::any_of(graph.updates.begin(), graph.updates.end(),
                       [&](const Update& update) { return update.target == id; });
  };
  const auto save = [&](TensorId& id) {
    // A cast to its own type is a copy.
    if (is_updated(id)) id = graph.add_node(Op::cast, {id}, CastAttrs{graph.type(id).dtype}, "").front();
  };
  for (NamedTensor& output : graph.outputs) save(output.tensor);
  for (NamedTensor& capture : graph.captures) save(capture.tensor);
  for (Update& update : graph.updates) save(update.value);
  return graph;
}

Graph without_recomputation(Graph graph) {
  for (Node& node : graph.nodes) node.recompute = false;
  return graph;
}

}  // namespace

Graph expand(const Graph& graph, const Target& target) {
  const auto clean = [](const Graph& dirty) { return remove_dead_nodes(merge_common_nodes(dirty)); };
  Graph blocks = decompose(resolve_ties(graph));
  if (!target.recompute) blocks = without_recomputation(std::move(blocks));
  blocks = clean(blocks);
  if (target.recompute) blocks = recompute_activations(blocks);
  return save_old_versions(clean(decompose(expand_templates(blocks))));
}

}  // namespace jerboa::detail
