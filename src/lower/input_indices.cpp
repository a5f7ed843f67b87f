#include "lower/input_indices.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <jerboa/transform/checks.h>
#include <jerboa/transform/decompose.h>

#include "lower/invalid_program.h"
#include "lower/verify_kernel.h"
#include "lower/views.h"

namespace jerboa::detail {
namespace {

// Whether the op may pass its operand's elements on unchanged. Its decomposition decides.
bool may_move_integers(const Graph& graph, const Node& node) {
  const Lowering lowering = info(node.op).lowering;
  return node.inputs.size() == 1 && is_integer(graph.type(node.inputs[0]).dtype) &&
         (lowering == Lowering::View || lowering == Lowering::Decompose || node.op == Op::cast);
}

// The ops between a tensor and the most distant one that it may be computed from by moves alone, as a separate graph
// with one output.
struct Path {
  TensorId source;
  Graph graph;
};
Path path_to(const Graph& graph, TensorId tensor) {
  std::vector<std::pair<const Node*, std::size_t>> ops;  // with the number of the output that is used
  while (graph.tensor(tensor).storage != Storage::input) {
    const Node& node = graph.producer(tensor);
    if (!may_move_integers(graph, node)) break;
    const auto output = std::find(node.outputs.begin(), node.outputs.end(), tensor) - node.outputs.begin();
    ops.emplace_back(&node, static_cast<std::size_t>(output));
    tensor = node.inputs[0];
  }
  Path path{tensor, {}};
  TensorId last =
      path.graph.add_node(Op::tensor_input, {}, NoAttrs{}, "", &graph.tensor(tensor).type, Storage::input).front();
  for (auto op = ops.rbegin(); op != ops.rend(); ++op)
    last = path.graph.add_node(op->first->op, {last}, op->first->attrs, "")[op->second];
  path.graph.outputs.push_back({"indices", last});
  return path;
}

// Whether a view of this many elements contains all of them, possibly repeated.
bool has_all(const InputIndices::View& view, const Dim& elements) {
  Dim count(1);
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i].lower_bound() < 1) return false;
    if (!(view.strides[i] == Dim(0))) count = count * view.shape[i];
  }
  return count == elements;
}

// The views of a path, that of the input first; nullopt if an op on the path computes something.
std::optional<std::vector<InputIndices::View>> views_of(Graph path) {
  const Graph graph = make_views_possible(decompose(std::move(path)));
  const auto layouts = layouts_of(graph);
  std::vector<InputIndices::View> views;
  TensorId tensor = graph.outputs[0].tensor;
  while (true) {
    const Layout& layout = layouts[static_cast<std::size_t>(tensor)];
    InputIndices::View view{graph.shape(tensor), layout.offset, layout.strides};
    if (!views.empty() || !has_all(view, element_count(graph.shape(layout.root)))) views.push_back(std::move(view));
    const Node& root = graph.producer(layout.root);
    if (root.op == Op::tensor_input) break;
    if (root.op != Op::cast) return std::nullopt;
    tensor = root.inputs[0];
  }
  std::reverse(views.begin(), views.end());
  return views;
}

const InputTensor& input_of(const ProgramEntry& entry, const InputIndices& indices) {
  const auto found = std::find_if(entry.inputs.begin(), entry.inputs.end(),
                                  [&](const InputTensor& input) { return input.name == indices.input; });
  if (found == entry.inputs.end() || !is_integer(found->dtype))
    fail_program("entry {} has indices in {}, which is not an input of integers", entry.name, indices.input);
  return *found;
}

// Finds the inputs that hold indices.
class IndexFinder {
 public:
  explicit IndexFinder(const Graph& graph) : graph_(graph) {}

  // Follows indices back to the inputs that hold them. Concatenated or padded indices are all used if the result is
  // used as a whole.
  void find(const Node& user, const IndexOperand& operand, TensorId tensor) {
    // Lists of indices that grow by concatenation share most of their sources.
    if (!followed_.emplace(tensor, operand.range.limit.str(), operand.range.negative_is_none).second) return;
    Path path = path_to(graph_, tensor);
    const TensorInfo& source = graph_.tensor(path.source);
    if (!is_integer(source.type.dtype)) return;
    auto views = views_of(std::move(path.graph));
    if (!views) return;
    if (source.storage == Storage::input)
      return add(
          {source.name, std::move(*views), operand.range.limit, operand.range.negative_is_none, user.op, user.site});
    const Node& producer = graph_.producer(path.source);
    if (!views->empty() || !has(producer.op, Trait::Moves)) return;
    for (const TensorId input : producer.inputs) find(user, operand, input);
  }

  std::vector<InputIndices> take() { return std::move(all_); }

 private:
  void add(InputIndices found) {
    const bool known = std::any_of(all_.begin(), all_.end(), [&](const InputIndices& other) {
      return other.input == found.input && other.views == found.views && other.limit == found.limit &&
             other.negative_is_none == found.negative_is_none;
    });
    if (!known) all_.push_back(std::move(found));
  }

  const Graph& graph_;
  std::set<std::tuple<TensorId, std::string, bool>> followed_;  // with the range of the indices
  std::vector<InputIndices> all_;
};

}  // namespace

std::vector<InputIndices> find_input_indices(const Graph& graph) {
  IndexFinder finder(graph);
  for (const Node& node : graph.nodes)
    for (const IndexOperand& operand : index_operands(graph, node)) finder.find(node, operand, operand.tensor);
  return finder.take();
}

void verify_views(const InputIndices& indices, std::int64_t elements, const SymbolValues& symbols) {
  constexpr DType index_type = DType::i32;
  for (const InputIndices::View& view : indices.views) {
    if (bytes_reached(indices.input, index_type, view.offset, view.strides, view.shape, symbols) >
        elements * bits(index_type) / 8)
      fail_program("indices are read outside of {}", indices.input);
    elements = element_count(evaluate(view.shape, symbols));
  }
}

void verify_input_indices(const ProgramEntry& entry) {
  for (const InputIndices& indices : entry.indices) {
    const InputTensor& input = input_of(entry, indices);
    SymbolValues symbols;
    const auto note = [&](const Dim& dim) { dim.collect_symbols(symbols); };
    std::for_each(input.shape.begin(), input.shape.end(), note);
    note(indices.limit);
    for (const InputIndices::View& view : indices.views) {
      std::for_each(view.shape.begin(), view.shape.end(), note);
      std::for_each(view.strides.begin(), view.strides.end(), note);
      note(view.offset);
    }
    verify_views(indices, element_count(evaluate(input.shape, symbols)), symbols);
    for (auto& [name, value] : symbols) value = 1;
    verify_views(indices, element_count(evaluate(input.shape, symbols)), symbols);
  }
}

}  // namespace jerboa::detail
