#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <set>

#include <jerboa/ir/packed_cache.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/decompose.h>
#include <jerboa/transform/grad.h>

#include "transform/grad_rules.h"

namespace jerboa {
namespace {

// Walks the nodes that lead from `wrt` to the outputs in reverse, carrying a cotangent for each tensor on the way.
// Nodes before `first` are left alone.
class ReverseWalk {
 public:
  ReverseWalk(Graph& graph, const std::vector<Tensor>& wrt, NodeId first)
      : graph_(graph), end_(static_cast<NodeId>(graph.nodes.size())), first_(first) {
    first_tensor_ = first_ < end_ ? graph.nodes[static_cast<std::size_t>(first_)].outputs[0]
                                  : static_cast<TensorId>(graph.tensors.size());
    for (const Tensor& tensor : wrt)
      if (tensor.id() < first_tensor_) earlier_.push_back(tensor.id());
    states_.resize(earlier_.size() + graph.tensors.size() - static_cast<std::size_t>(first_tensor_));
    for (const Tensor& tensor : wrt) states_[slot_of(tensor.id())].reaches = true;
    for (NodeId id = first_; id < end_; ++id) {
      const Node& node = graph.nodes[static_cast<std::size_t>(id)];
      bool any = false;
      for (const TensorId input : node.inputs) any |= input != no_tensor && reaches(input);
      if (!any) continue;
      for (const TensorId output : node.outputs)
        if (is_float(graph.type(output).dtype) || is_rounded(node)) states_[slot_of(output)].reaches = true;
    }
  }

  void seed(const Tensor& output, const Tensor& cotangent) {
    if (slot_of(output.id()) != no_slot) at(output.id()).add(cotangent);
  }

  void run() {
    for (NodeId id = end_ - 1; id >= first_; --id) {
      const Node node = graph_.nodes[static_cast<std::size_t>(id)];  // a copy: appending reallocates the nodes
      if (is_needed(node)) back(node);
    }
  }

  // The same, but a part of the tensor if it is zero elsewhere.
  detail::Contribution contribution(const Tensor& tensor) {
    const auto part = at(tensor.id()).single_part();
    return part ? *part : detail::Contribution(cotangent(tensor));
  }

  Tensor cotangent(const Tensor& tensor) {
    const SiteScope scope(graph_.producer(tensor.id()).site);
    return at(tensor.id()).total(tensor.shape());
  }

 private:
  struct State {
    bool reaches = false;  // depends on a tensor whose gradient is wanted, or is one
    detail::Cotangent cotangent;
  };

  static constexpr std::size_t no_slot = std::numeric_limits<std::size_t>::max();
  // no_slot for a tensor before the walk's nodes whose gradient is not wanted.
  std::size_t slot_of(TensorId id) const {
    if (id >= first_tensor_) return earlier_.size() + static_cast<std::size_t>(id - first_tensor_);
    const auto found = std::find(earlier_.begin(), earlier_.end(), id);
    return found == earlier_.end() ? no_slot : static_cast<std::size_t>(found - earlier_.begin());
  }
  // Whether a node rounds to 8 bits, or moves rounded values, of something that depends on a tensor whose gradient is
  // wanted. An op that reads floats from there must know, because no gradient comes back. An op that rounds has no
  // gradient itself; in a cast to integers, which has one, nothing is lost.
  bool is_rounded(const Node& node) const {
    if (graph_.type(node.outputs[0]).dtype != packed_cache) return false;
    const bool rounds = info(node.op).gradient == Gradient::None;
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](TensorId input) {
      return input != no_tensor && reaches(input) && (rounds || graph_.type(input).dtype == packed_cache);
    });
  }
  detail::Cotangent& at(TensorId id) { return states_[slot_of(id)].cotangent; }
  bool reaches(TensorId id) const { return slot_of(id) != no_slot && states_[slot_of(id)].reaches; }
  Tensor handle(TensorId id) const { return id == no_tensor ? Tensor() : Tensor(graph_.identity(), id); }

  bool is_needed(const Node& node) const {
    bool from = false, to = false;
    for (const TensorId output : node.outputs) from |= static_cast<bool>(states_[slot_of(output)].cotangent);
    for (const TensorId input : node.inputs) to |= input != no_tensor && reaches(input);
    return from && to;
  }

  void back(const Node& node) {
    const SiteScope scope(node.site);
    const Gradient column = info(node.op).gradient;
    if (column == Gradient::Zero) return;
    if (column == Gradient::None)
      throw GraphError(fmt::format("{}: cannot be differentiated{}", name(node.op),
                                   node.site.empty() ? "" : " (" + node.site + ")"));
    if (is_reshape(node)) {
      // Parts of the result are parts of the operand: what slices of slices have in between does not matter.
      detail::Cotangent& cotangent = at(node.outputs[0]);
      const Shape from = graph_.shape(node.outputs[0]), to = graph_.shape(node.inputs[0]);  // copies, as above
      cotangent.pass_blocks_on(at(node.inputs[0]), from, to);
      if (!cotangent) return;
    }
    std::vector<Tensor> x, y, dys;
    std::vector<bool> wanted;
    for (const TensorId id : node.inputs) {
      x.push_back(handle(id));
      wanted.push_back(id != no_tensor && reaches(id));
    }
    // A slice passes a part of its result on as a part of its operand, without padding it twice.
    const auto part = is_range(node) ? at(node.outputs[0]).single_part() : std::nullopt;
    for (const TensorId id : node.outputs) {
      y.push_back(handle(id));
      dys.push_back(part ? part->tensor : at(id).total(y.back().shape()));
    }
    refuse_rounded(node, x, wanted);
    const std::size_t before = graph_.nodes.size();
    detail::Grads grads = column == Gradient::Decompose
                              ? through_decomposition(node, x, dys, wanted)
                              : detail::apply_gradient_rule({node, x, y, dys, wanted, dys[0]});
    if (part) grads[0] = within(*part, grads[0]);
    // Recompute statistics of norms and slopes of activations from x, which is kept anyway: cheaper than keeping them.
    const bool activation = info(node.op).lowering == Lowering::Loop && node.inputs.size() == 1;
    if ((activation && reads_any_of(before, node)) || has(node.op, Trait::Recomputable))
      for (std::size_t i = before; i < graph_.nodes.size(); ++i) graph_.nodes[i].recompute = true;
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (grads[i] && wanted[i] && is_float(x[i].dtype()))
        at(node.inputs[i]).add(grads[i].is_part() ? grads[i] : sum_to_shape(grads[i].tensor, x[i].shape()));
  }

  static bool is_reshape(const Node& node) {
    return node.op == Op::reshape || node.op == Op::squeeze || node.op == Op::unsqueeze;
  }

  static bool is_range(const Node& node) { return node.op == Op::slice && node.as<SliceAttrs>().step == 1; }

  // A part of a part, which has the inner one's shape.
  static detail::Contribution within(const detail::Contribution& inner, const detail::Contribution& outer) {
    detail::Contribution part(outer);
    for (std::size_t i = 0; i < part.starts.size(); ++i) part.starts[i] = part.starts[i] + inner.starts[i];
    return part;
  }

  // Rounding to 8 bits has no gradient, which must not go unnoticed in the graph itself.
  static void refuse_rounded(const Node& node, const std::vector<Tensor>& x, const std::vector<bool>& wanted) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (wanted[i] && x[i].dtype() == packed_cache)
        throw GraphError(
            fmt::format("{}: what is rounded to 8 bits cannot be differentiated; use a cache of f32 or f16{}",
                        name(node.op), node.site.empty() ? "" : " (" + node.site + ")"));
  }

  // Whether nodes from `first` on read an operand or a result of the node. The gradient of a cast, for example, does
  // not.
  bool reads_any_of(std::size_t first, const Node& node) const {
    const auto belongs = [&](TensorId id) {
      return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end() ||
             std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end();
    };
    return std::any_of(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(first), graph_.nodes.end(),
                       [&](const Node& made) { return std::any_of(made.inputs.begin(), made.inputs.end(), belongs); });
  }

  // Only the decomposition's own nodes are walked: an operand may be computed from another one, and the nodes in
  // between propagate its gradient.
  detail::Grads through_decomposition(const Node& node, const std::vector<Tensor>& x, const std::vector<Tensor>& dys,
                                      const std::vector<bool>& wanted) const {
    const auto first = static_cast<NodeId>(graph_.nodes.size());
    const auto made = decomposition(node, x);
    std::vector<Tensor> wrt;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (wanted[i]) wrt.push_back(x[i]);
    ReverseWalk walk(graph_, wrt, first);
    for (std::size_t i = 0; i < made.size(); ++i)
      if (dys[i]) walk.seed(made[i], dys[i]);
    walk.run();
    detail::Grads grads(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      // A tensor that occurs several times has one cotangent for all occurrences.
      const auto same = [&](const Tensor& other) { return other.id() == x[i].id(); };
      const bool counted = std::any_of(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(i), same);
      if (wanted[i] && !counted) grads[i] = walk.contribution(x[i]);
    }
    return grads;
  }

  Graph& graph_;
  NodeId end_, first_;
  // The decomposition of one node is walked separately: its states must not take as long as the whole graph.
  TensorId first_tensor_ = 0;
  std::vector<TensorId> earlier_;  // wanted tensors before the walk's nodes
  std::vector<State> states_;      // of those, then of the tensors of the walk's nodes
};

}  // namespace

std::vector<Tensor> vector_jacobian(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                                    const std::vector<Tensor>& wrt) {
  ReverseWalk walk(current_graph("vector_jacobian"), wrt, 0);
  for (std::size_t i = 0; i < outputs.size(); ++i) walk.seed(outputs[i], cotangents[i]);
  walk.run();
  std::vector<Tensor> grads;
  for (const Tensor& tensor : wrt) grads.push_back(walk.cotangent(tensor));
  return grads;
}

std::vector<Tensor> grad(Operand loss, const std::vector<Tensor>& wrt) {
  const Tensor loss_tensor = loss.tensor();
  if (!loss_tensor) throw GraphError("the loss is empty: the function that computes it returned no tensor");
  const TensorType type = [&] {
    const SiteScope scope(loss.site());
    for (const Tensor& tensor : wrt) tensor.dtype();  // throws if it is not in this graph
    return TensorType{loss_tensor.dtype(), loss_tensor.shape()};
  }();
  const std::string where =
      current_graph("grad").producer(loss_tensor.id()).site;  // the line that computed it, not this call's
  const std::string site = where.empty() ? "" : " (" + where + ")";
  if (!type.shape.empty() || !is_float(type.dtype))
    throw GraphError(
        fmt::format("the loss must be a float scalar, not {}{}; take its mean or sum", to_string(type), site));
  for (const Tensor& tensor : wrt)
    if (!is_float(tensor.dtype()))
      throw GraphError(
          fmt::format("{} is {}: only float tensors have gradients{}", tensor.name(), name(tensor.dtype()), site));
  // The loss provides the user's line; nodes in between have the lines of the nodes they differentiate.
  const auto of_loss = [&](auto&& make) {
    const SiteScope scope(where);
    return make();
  };
  auto grads = vector_jacobian({loss_tensor}, {of_loss([&] { return scalar(1, loss_tensor.dtype()); })}, wrt);
  for (std::size_t i = 0; i < wrt.size(); ++i)
    if (!grads[i]) grads[i] = of_loss([&] { return zeros_like(wrt[i]); });
  return grads;
}

std::vector<ParamGrad> append_grad(Operand loss) {
  return append_grad(loss, [](const std::string&) { return true; });
}

std::vector<ParamGrad> append_grad(Operand loss, const std::function<bool(const std::string& name)>& wanted) {
  Graph& graph = current_graph("append_grad", loss.site());
  std::vector<Tensor> params;
  std::vector<std::string> owners;  // by parameter: the one whose values it has; itself, unless it is tied
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorInfo& info = graph.tensors[i];
    const std::string& owner = info.tied_to.empty() ? info.name : info.tied_to;
    if (info.storage != Storage::param || !info.trainable || !wanted(owner)) continue;
    params.emplace_back(graph.identity(), static_cast<TensorId>(i));
    owners.push_back(owner);
  }
  const auto grads = grad(loss, params);
  const SiteScope scope(loss.site());
  std::vector<ParamGrad> pairs;
  std::set<TensorId> named;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].name() != owners[i]) continue;
    Tensor total = grads[i];
    for (std::size_t j = 0; j < params.size(); ++j)
      if (j != i && owners[j] == owners[i]) total = total + grads[j];
    // One tensor may be the gradient of two parameters; each needs its own name.
    if (!named.insert(total.id()).second) total = reshape(total, total.shape());
    pairs.push_back({params[i], total.named("d_" + owners[i])});
  }
  return pairs;
}

}  // namespace jerboa
