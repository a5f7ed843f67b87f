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

#include "ir/op_functions.h"
#include "lower/widening.h"
#include "transform/rewrite.h"

namespace jerboa::detail {
namespace {

using Inputs = std::vector<Tensor>;

// The angle's frequency and the factors of the cosine and the sine, per element: 0, 1 and 0 for an element that is not
// rotated.
struct RopeRows {
  Tensor frequencies, cosines, sines;
};

// An RMS norm whose result only one node reads: x * scale * weight; the weight may be missing.
struct NormFactors {
  Tensor x, scale, weight;
};

// Tensors that several expansions share.
struct Shared {
  std::map<std::string, RopeRows> ropes;
  std::vector<int> uses;                  // by tensor of the original graph
  std::map<TensorId, NormFactors> norms;  // by result in the original graph
};

// One specialisation for each row of the op table that says Expand; a missing one is a compile error that names it.
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
Tensor expansion<Op::rms_norm>(const Node& node, const Inputs& in, Shared& shared) {
  const Tensor scale = rsqrt(mean(in[0] * in[0], {-1}, true) + node.as<EpsAttrs>().eps);
  if (shared.uses[static_cast<std::size_t>(node.outputs[0])] == 1)
    shared.norms.emplace(node.outputs[0], NormFactors{in[0], scale, in[1]});
  const Tensor result = in[0] * scale;
  return in[1] ? result * in[1] : result;
}

template <>
Tensor expansion<Op::cross_entropy>(const Node& node, const Inputs& in, Shared&) {
  const Tensor &logits = in[0], &targets = in[1], &mask = in[2];
  const double smoothing = node.as<CrossEntropyAttrs>().label_smoothing;
  const Tensor shifted = logits - max(logits, {-1}, true);
  const Tensor spread = log(sum(exp(shifted), {-1}));
  const Tensor classes = arange(logits.dim(-1), targets.dtype());
  const Tensor at_target = equal(classes, unsqueeze(targets, {-1}));
  Tensor loss = spread - sum(where(at_target, shifted, 0), {-1});
  if (smoothing > 0) {
    const Tensor sharp = (1 - smoothing) * loss;
    loss = sharp + smoothing * (spread - mean(shifted, {-1}));
  }
  loss = where(targets < 0, 0, loss);
  return mask ? loss * mask : loss;
}

RopeRows rope_rows(const RopeAttrs& attrs, std::int64_t size) {
  const RopeTable table = rope_table(attrs, size);
  const auto half = static_cast<std::int64_t>(table.frequencies.size());
  std::vector<float> frequencies(static_cast<std::size_t>(size), 0), cosines(static_cast<std::size_t>(size), 1),
      sines(static_cast<std::size_t>(size), 0);
  for (std::int64_t i = 0; i < half; ++i)
    for (const bool second : {false, true}) {
      const auto at = static_cast<std::size_t>(attrs.interleaved ? 2 * i + second : second * half + i);
      const double turn = attrs.inverse ? -table.magnitude : table.magnitude;
      frequencies[at] = static_cast<float>(table.frequencies[static_cast<std::size_t>(i)]);
      cosines[at] = static_cast<float>(table.magnitude);
      sines[at] = static_cast<float>(second ? turn : -turn);
    }
  const auto row = [&](const std::vector<float>& values) {
    return constant(HostTensor({size}, std::span<const float>(values)));
  };
  return {row(frequencies), row(cosines), row(sines)};
}

// Swaps each element with its partner.
Tensor partners(const Tensor& x, std::int64_t half, bool interleaved) {
  const std::int64_t size = x.dim(3).value();
  if (interleaved) {
    const Tensor pairs = reshape(x, {x.dim(0), x.dim(1), x.dim(2), size / 2, 2});
    return reshape(concat({slice(pairs, 4, 1, 2), slice(pairs, 4, 0, 1)}, 4), x.shape());
  }
  std::vector<Operand> parts{slice(x, 3, half, 2 * half), slice(x, 3, 0, half)};
  if (2 * half < size) parts.emplace_back(slice(x, 3, 2 * half, size));
  return concat(parts, 3);
}

// The partners of a norm's results, computed from those of its factors: moved elements must be read from memory, so
// that the norm would otherwise need a separate kernel.
Tensor normed_partners(const NormFactors& norm, std::int64_t half, bool interleaved) {
  const Tensor moved = partners(norm.x, half, interleaved) * norm.scale;
  if (!norm.weight) return moved;
  return moved * partners(broadcast_to(norm.weight, norm.x.shape()), half, interleaved);
}

// x cos + partner sin, with the sign in the sine's factor: one loop, because moved elements are read in place.
template <>
Tensor expansion<Op::rope>(const Node& node, const Inputs& in, Shared& shared) {
  const auto& attrs = node.as<RopeAttrs>();
  const Tensor& x = in[0];
  const std::int64_t size = x.dim(3).value();
  const auto [known, fresh] = shared.ropes.try_emplace(attrs_to_json(node.attrs) + std::to_string(size));
  RopeRows& rows = known->second;
  if (fresh) rows = rope_rows(attrs, size);
  const Tensor positions =
      in[1] ? reshape(in[1], {in[1].dim(0), 1, x.dim(2), 1}) : reshape(arange(x.dim(2)), {1, 1, x.dim(2), 1});
  const Tensor angle = cast(positions, DType::f32) * rows.frequencies;
  const Tensor cosine = cast(cos(angle) * rows.cosines, x.dtype()), sine = cast(sin(angle) * rows.sines, x.dtype());
  const auto half = static_cast<std::int64_t>(rope_table(attrs, size).frequencies.size());
  const Tensor straight = x * cosine;
  const auto norm = shared.norms.find(node.inputs[0]);
  const Tensor moved = norm == shared.norms.end() ? partners(x, half, attrs.interleaved)
                                                  : normed_partners(norm->second, half, attrs.interleaved);
  return straight + moved * sine;
}

// A recomputed activation, written so that it shares subexpressions with its derivative.
template <>
Tensor expansion<Op::gelu>(const Node& node, const Inputs& in, Shared&) {
  const Tensor& x = in[0];
  if (node.as<GeluAttrs>().approximate == GeluForm::none) return x * (0.5 * (1 + erf(x / std::numbers::sqrt2)));
  const double c = 2 * std::sqrt(2 / std::numbers::pi), k = 0.044715;
  return x * sigmoid(c * (x + k * (x * x * x)));
}

template <>
Tensor expansion<Op::silu>(const Node&, const Inputs& in, Shared&) {
  return in[0] * sigmoid(in[0]);
}

using Expansion = Tensor (*)(const Node&, const Inputs&, Shared&);

constexpr auto expansions = op_functions<Expansion>([]<Op op>() -> Expansion {
  if constexpr (columns_of<op>.lowering == Lowering::Expand) return &expansion<op>;
  return nullptr;
});

Expansion expansion_of(const Node& node) {
  if (node.recompute && node.op == Op::gelu) return &expansion<Op::gelu>;
  if (node.recompute && node.op == Op::silu) return &expansion<Op::silu>;
  return expansions[static_cast<std::size_t>(node.op)];
}

// By tensor: how often nodes, outputs, captures and updates read it.
std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(graph.tensors.size(), 0);
  const auto add = [&](TensorId id) {
    if (id != no_tensor) ++uses[static_cast<std::size_t>(id)];
  };
  for (const Node& node : graph.nodes)
    for (const TensorId input : node.inputs) add(input);
  for (const NamedTensor& output : graph.outputs) add(output.tensor);
  for (const NamedTensor& capture : graph.captures) add(capture.tensor);
  for (const Update& update : graph.updates) add(update.value);
  return uses;
}

Graph expand_templates(Graph graph) {
  const auto is_expanded = [](const Node& node) { return expansion_of(node) != nullptr; };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_expanded)) return graph;
  Graph result;
  trace_into(result, [&] {
    Graph& out = current_graph("expand");
    Shared shared;
    shared.uses = count_uses(graph);
    GraphRewriter rewriter(graph, out);
    for (const Node& node : graph.nodes) {
      const Expansion rule = expansion_of(node);
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

// Replaces a tied parameter by the one it is tied to, so that accesses to their common memory are seen as such.
Graph resolve_ties(Graph graph) {
  const auto is_tied = [](const TensorInfo& tensor) { return !tensor.tied_to.empty(); };
  if (std::none_of(graph.tensors.begin(), graph.tensors.end(), is_tied)) return graph;
  Graph result;
  GraphRewriter rewriter(graph, result);
  const auto tied_to = [&](const Node& node) { return graph.tensor(node.outputs[0]).tied_to; };
  // Untied parameters first: a tied one may precede the one it is tied to.
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

// An output of a parameter or state that this graph updates is the old version, so it is copied before the update.
Graph save_old_versions(Graph graph) {
  const auto is_updated = [&](TensorId id) {
    while (info(graph.producer(id).op).lowering == Lowering::View) id = graph.producer(id).inputs[0];
    return std::any_of(graph.updates.begin(), graph.updates.end(),
                       [&](const Update& update) { return update.target == id; });
  };
  const auto save = [&](TensorId& id) {
    // A cast to the same type is a copy.
    if (is_updated(id)) id = graph.add_node(Op::cast, {id}, CastAttrs{graph.type(id).dtype}, "").front();
  };
  for (NamedTensor& output : graph.outputs) save(output.tensor);
  for (NamedTensor& capture : graph.captures) save(capture.tensor);
  for (Update& update : graph.updates) save(update.value);
  return graph;
}

// A sum of squares widens its operands: gradients of f16 need no f32 copy for it.
Graph square_before_widening(Graph graph) {
  for (Node& node : graph.nodes) {
    if (node.op != Op::sum_squares) continue;
    for (TensorId& input : node.inputs)
      if (const Node& made = graph.producer(input); widens(graph, made)) input = made.inputs[0];
  }
  return graph;
}

Graph without_recomputation(Graph graph) {
  for (Node& node : graph.nodes) node.recompute = false;
  return graph;
}

}  // namespace

Graph expand(Graph graph, const Target& target) {
  graph = decompose(resolve_ties(std::move(graph)));
  if (!target.recompute) graph = without_recomputation(std::move(graph));
  graph = clean_up(std::move(graph));
  if (target.recompute) graph = recompute_activations(std::move(graph));
  graph = square_before_widening(decompose(expand_templates(std::move(graph))));
  return save_old_versions(clean_up(std::move(graph)));
}

}  // namespace jerboa::detail
