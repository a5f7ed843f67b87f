#include <fmt/format.h>
#include <map>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>

namespace jerboa {
namespace {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw GraphError("invalid graph: " + fmt::format(format, std::forward<Args>(args)...));
}

void check_id(const Graph& graph, TensorId id, const std::string& user) {
  if (id < 0 || id >= static_cast<TensorId>(graph.tensors.size()))
    fail("{} uses tensor {}, which does not exist", user, id);
}

void check_names(const Graph& graph) {
  std::set<std::string> seen;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.name.empty()) fail("a tensor has no name");
    if (!seen.insert(tensor.name).second) fail("two tensors are named {}", tensor.name);
  }
}

void check_symbols(const Graph& graph) {
  const auto bounds = graph.symbols();
  for (const TensorInfo& tensor : graph.tensors)
    for (const Dim& dim : tensor.type.shape) {
      std::map<std::string, std::int64_t> symbols;
      dim.collect_symbols(symbols);
      for (const auto& [name, bound] : symbols)
        if (bounds.at(name) != bound) fail("symbol {} is bounded by {} and by {}", name, bounds.at(name), bound);
    }
}

// Where the results of an op are stored.
Storage storage_of(Op op) {
  switch (op) {
    case Op::tensor_input: return Storage::input;
    case Op::param_input: return Storage::param;
    case Op::state_input: return Storage::state;
    case Op::constant: return Storage::constant;
    default: return Storage::activation;
  }
}

void check_leaf(const Graph& graph, const Node& node, const std::string& user) {
  const OpInfo& row = info(node.op);
  if (!node.inputs.empty()) fail("{} takes no operands", user);
  if (node.outputs.size() != 1) fail("{} has {} outputs, not 1", user, node.outputs.size());
  if (node.attrs.index() != row.default_attrs.index()) fail("the attributes of {} must be {}", user, row.attrs_name);
  if (node.op != Op::constant) return;
  const int blob = node.as<ConstantAttrs>().blob;
  if (blob < 0 || blob >= static_cast<int>(graph.constants.size())) fail("{} has no values", user);
  const HostTensor& values = graph.constants[static_cast<std::size_t>(blob)];
  if (graph.type(node.outputs[0]) != TensorType{values.dtype(), to_shape(values.shape())})
    fail("{} does not have the type of its values", user);
}

void check_node(const Graph& graph, NodeId id, const std::vector<bool>& defined) {
  const Node& node = graph.nodes[static_cast<std::size_t>(id)];
  const std::string user = fmt::format("node {} ({})", id, name(node.op));
  std::vector<const TensorType*> inputs;
  for (const TensorId input : node.inputs) {
    if (input == no_tensor) {
      inputs.push_back(nullptr);
      continue;
    }
    check_id(graph, input, user);
    if (!defined[static_cast<std::size_t>(input)])
      fail("{} uses {} before it is computed", user, graph.tensor(input).name);
    inputs.push_back(&graph.type(input));
  }
  if (node.outputs.empty()) fail("{} has no outputs", user);
  for (const TensorId output : node.outputs) {
    check_id(graph, output, user);
    if (defined[static_cast<std::size_t>(output)]) fail("{} writes {} again", user, graph.tensor(output).name);
    const TensorInfo& tensor = graph.tensor(output);
    if (tensor.producer != id) fail("{} is not the producer of {}", user, tensor.name);
    if (tensor.storage != storage_of(node.op))
      fail("{} gives {}, which is stored as {}", user, tensor.name, name(tensor.storage));
  }
  if (info(node.op).lowering == Lowering::Leaf) check_leaf(graph, node, user);
  if (is_stored_leaf(node.op)) return;
  const auto types = infer(node.op, inputs, node.attrs);
  if (types.size() != node.outputs.size()) fail("{} has {} outputs, not {}", user, types.size(), node.outputs.size());
  for (std::size_t i = 0; i < types.size(); ++i)
    if (graph.type(node.outputs[i]) != types[i])
      fail("{} gives {}, but {} is {}", user, to_string(types[i]), graph.tensor(node.outputs[i]).name,
           to_string(graph.type(node.outputs[i])));
}

void check_updates(const Graph& graph) {
  std::set<TensorId> targets;
  for (const auto& [target, value] : graph.updates) {
    check_id(graph, target, "an update");
    check_id(graph, value, "an update");
    const TensorInfo& info = graph.tensor(target);
    if (info.storage != Storage::param && info.storage != Storage::state)
      fail("{} is updated but is neither a parameter nor a state", info.name);
    if (!info.tied_to.empty()) fail("{} is updated, but its values are those of {}", info.name, info.tied_to);
    if (!targets.insert(target).second) fail("{} is updated twice", info.name);
    if (info.type != graph.type(value))
      fail("{} is {} but its update is {}", info.name, to_string(info.type), to_string(graph.type(value)));
  }
}

void check_ties(const Graph& graph) {
  std::map<std::string, const TensorInfo*> params;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param) params.emplace(tensor.name, &tensor);
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.tied_to.empty()) continue;
    const auto owner = params.find(tensor.tied_to);
    if (tensor.storage != Storage::param || owner == params.end())
      fail("{} is tied to {}, but only parameters of one graph can be tied", tensor.name, tensor.tied_to);
    if (!owner->second->tied_to.empty()) fail("{} is tied to {}, which is tied itself", tensor.name, tensor.tied_to);
    if (owner->second->type != tensor.type)
      fail("{} is {} but is tied to {}, which is {}", tensor.name, to_string(tensor.type), tensor.tied_to,
           to_string(owner->second->type));
  }
}

void check_named(const Graph& graph, const std::vector<NamedTensor>& list, const char* what) {
  std::set<std::string> seen;
  for (const auto& [name, tensor] : list) {
    check_id(graph, tensor, fmt::format("{} {}", what, name));
    if (!seen.insert(name).second) fail("two {}s are named {}", what, name);
  }
}

}  // namespace

void verify(const Graph& graph) {
  check_names(graph);
  check_symbols(graph);
  check_ties(graph);
  std::vector<bool> defined(graph.tensors.size(), false);
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    check_node(graph, id, defined);
    for (const TensorId output : graph.nodes[static_cast<std::size_t>(id)].outputs)
      defined[static_cast<std::size_t>(output)] = true;
  }
  for (std::size_t i = 0; i < defined.size(); ++i)
    if (!defined[i]) fail("nothing computes {}", graph.tensors[i].name);
  check_named(graph, graph.outputs, "output");
  check_named(graph, graph.captures, "capture");
  check_updates(graph);
}

}  // namespace jerboa
