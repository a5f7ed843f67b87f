#include <algorithm>
#include <map>

#include <jerboa/ops/ops.h>
#include <jerboa/ops/reserved_state.h>
#include <jerboa/transform/half_copies.h>

#include "transform/rewrite.h"

namespace jerboa {
namespace {

// By node: whether it converts a parameter to f16 for a product.
std::vector<bool> find_copies(const Graph& graph) {
  std::vector<bool> copies(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    if (!has(node.op, Trait::Half)) continue;
    for (const TensorId input : node.inputs) {
      if (input == no_tensor || graph.producer(input).op != Op::cast || graph.type(input).dtype != DType::f16) continue;
      const TensorInfo& source = graph.tensor(graph.producer(input).inputs[0]);
      copies[static_cast<std::size_t>(graph.tensor(input).producer)] =
          source.storage == Storage::param && source.type.dtype == DType::f32 && source.tied_to.empty();
    }
  }
  return copies;
}

}  // namespace

std::string half_copy_of(const std::string& param) { return half_copy_prefix + param; }

std::optional<std::string> half_copy_source(const std::string& state) {
  if (!state.starts_with(half_copy_prefix)) return std::nullopt;
  return state.substr(std::string_view(half_copy_prefix).size());
}

Graph with_half_copies(const Graph& graph) {
  const std::vector<bool> copies = find_copies(graph);
  Graph result;
  trace_into(result, [&] {
    Graph& out = current_graph("with_half_copies");
    detail::GraphRewriter rewriter(graph, out);
    std::map<std::string, TensorId> kept;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (!copies[i]) {
        rewriter.copy(node);
        continue;
      }
      const SiteScope scope(node.site);
      const std::string name = half_copy_of(graph.tensor(node.inputs[0]).name);
      const auto [known, fresh] = kept.emplace(name, no_tensor);
      if (fresh) known->second = detail::reserved_state(name, graph.shape(node.outputs[0]), DType::f16).id();
      rewriter.replace(node, {known->second}, out.tensors.size());
    }
    rewriter.finish();
    update_half_copies(out);
  });
  return result;
}

void update_half_copies(const Graph& with) {
  Graph& graph = current_graph("update_half_copies");
  const std::vector<Update> updates = graph.updates;
  for (const Update& made : updates) {
    const TensorInfo param = graph.tensor(made.target);
    const std::string name = half_copy_of(param.name);
    if (param.storage != Storage::param || with.find(name) == no_tensor) continue;
    const TensorId known = graph.find(name);
    const Tensor copy = known == no_tensor ? detail::reserved_state(name, param.type.shape, DType::f16)
                                           : Tensor(graph.identity(), known);
    update(copy, cast(Tensor(graph.identity(), made.value), DType::f16));
  }
}

}  // namespace jerboa
