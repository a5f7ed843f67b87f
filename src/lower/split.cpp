#include "lower/split.h"

#include <algorithm>

#include "lower/target.h"
#include "transform/rewrite.h"

namespace jerboa::detail {
namespace {

// A kernel checks every part for every element, so a concatenation of many parts is faster in levels.
constexpr std::size_t most_parts = 16;

class ConcatSplitter {
 public:
  ConcatSplitter(Graph& graph, const Target& target, const Node& node) : graph_(graph), target_(target), node_(node) {}

  // Joins neighbours level by level until one kernel can bind all the rest.
  TensorId run(std::vector<TensorId> parts, const TensorType& type) {
    const int result = bindings(type);
    while (parts.size() > most_parts || total(parts) + result > target_.max_bindings) {
      std::vector<TensorId> joined;
      for (std::size_t i = 0; i < parts.size();) {
        std::vector<TensorId> some{parts[i++]};
        while (i < parts.size() && fits(some, parts[i])) some.push_back(parts[i++]);
        joined.push_back(some.size() == 1 ? some[0] : join(some));
      }
      if (joined.size() == parts.size()) break;  // too large to be joined at all; reported later
      parts = std::move(joined);
    }
    return join(parts);
  }

 private:
  int bindings(const TensorType& type) const { return binding_count(bytes_of(type), target_); }

  int total(const std::vector<TensorId>& parts) const {
    int count = 0;
    for (const TensorId part : parts) count += bindings(graph_.type(part));
    return count;
  }

  bool fits(std::vector<TensorId> parts, TensorId next) {
    parts.push_back(next);
    std::int64_t bytes = 0;
    for (const TensorId part : parts) bytes += bytes_of(graph_.type(part));
    return parts.size() <= most_parts && total(parts) + binding_count(bytes, target_) <= target_.max_bindings;
  }

  TensorId join(const std::vector<TensorId>& parts) {
    return graph_.add_node(Op::concat, parts, node_.attrs, node_.site).front();
  }

  Graph& graph_;
  const Target& target_;
  const Node& node_;
};

}  // namespace

Graph split_concats(Graph graph, const Target& target) {
  const auto is_large = [&](const Node& node) {
    if (node.op != Op::concat) return false;
    int count = binding_count(bytes_of(graph.type(node.outputs[0])), target);
    for (const TensorId input : node.inputs) count += binding_count(bytes_of(graph.type(input)), target);
    return count > target.max_bindings || node.inputs.size() > most_parts;
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_large)) return graph;
  Graph result;
  GraphRewriter rewriter(graph, result);
  for (const Node& node : graph.nodes) {
    if (!is_large(node)) {
      rewriter.copy(node);
      continue;
    }
    const std::size_t before = result.tensors.size();
    const TensorId joined =
        ConcatSplitter(result, target, node).run(rewriter.at(node.inputs), graph.type(node.outputs[0]));
    rewriter.replace(node, {joined}, before);
  }
  rewriter.finish();
  return result;
}

}  // namespace jerboa::detail
