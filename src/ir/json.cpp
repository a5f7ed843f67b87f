#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>

#include "base/parse_json.h"
#include "ir/attr_json.h"

// {"version", "training", "symbols", "tensors": [{name, dtype, shape, …}],
//  "nodes": [{op, inputs, outputs, attrs, site}], "outputs", "captures": {name: id}, "updates": [[target, value]],
//  "constants"}. Ids are indices into "tensors".
namespace jerboa {
namespace {

using detail::Bounds;
using detail::Json;

constexpr int json_version = 1;

Json tensor_json(const TensorInfo& tensor) {
  Json json{
      {"name", tensor.name}, {"dtype", name(tensor.type.dtype)}, {"shape", detail::shape_json(tensor.type.shape)}};
  if (tensor.storage == Storage::activation) return json;
  json["storage"] = name(tensor.storage);
  if (tensor.is_rate) json["is_rate"] = true;
  if (tensor.storage != Storage::param && tensor.storage != Storage::state) return json;
  json["init"] = {{"kind", enum_names(tensor.init.kind)[static_cast<std::size_t>(tensor.init.kind)]},
                  {"mean", tensor.init.mean},
                  {"width", tensor.init.width}};
  if (tensor.trainable) json["trainable"] = true;
  if (tensor.decay) json["decay"] = true;
  if (!tensor.tied_to.empty()) json["tied_to"] = tensor.tied_to;
  return json;
}

Json node_json(const Node& node) {
  Json json{{"op", name(node.op)}, {"inputs", node.inputs}, {"outputs", node.outputs}};
  if (const Json attrs = detail::attrs_json(node.attrs, false); !attrs.empty()) json["attrs"] = attrs;
  if (!node.site.empty()) json["site"] = node.site;
  if (node.recompute) json["recompute"] = true;
  return json;
}

Json constant_json(const HostTensor& constant) {
  Json values = Json::array();
  for (std::int64_t i = 0; i < constant.size(); ++i) values.push_back(detail::number_json(constant.number(i)));
  return {{"dtype", name(constant.dtype())}, {"shape", constant.shape()}, {"values", values}};
}

Json named_json(const std::vector<NamedTensor>& list) {
  Json json = Json::object();
  for (const auto& [name, tensor] : list) json[name] = tensor;
  return json;
}

DType dtype_at(const Json& json) {
  const auto text = json.at("dtype").get<std::string>();
  const auto dtype = dtype_from_name(text);
  if (!dtype) throw GraphError(fmt::format("unknown type {}", text));
  return *dtype;
}

template <class E, class Names>
E enum_at(const Json& json, const Names& names, const char* what) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (json == names[i]) return static_cast<E>(i);
  throw GraphError(fmt::format("unknown {} {}", what, json.dump()));
}

TensorInfo tensor_from(const Json& json, const Bounds& bounds) {
  TensorInfo tensor;
  tensor.name = json.at("name").get<std::string>();
  tensor.type = {dtype_at(json), detail::shape_from(json.at("shape"), bounds, "the shape of " + tensor.name)};
  constexpr auto storages = std::to_array<std::string_view>({"input", "param", "state", "constant", "activation"});
  if (json.contains("storage")) tensor.storage = enum_at<Storage>(json["storage"], storages, "storage");
  if (json.contains("init")) {
    const Json& init = json["init"];
    tensor.init.kind = enum_at<Init::Kind>(init.at("kind"), enum_names(Init::Kind{}), "init");
    tensor.init.mean = init.at("mean").get<double>();
    tensor.init.width = init.at("width").get<double>();
  }
  tensor.is_rate = json.value("is_rate", false);
  tensor.trainable = json.value("trainable", false);
  tensor.decay = json.value("decay", false);
  tensor.tied_to = json.value("tied_to", "");
  return tensor;
}

Node node_from(const Json& json, const Bounds& bounds) {
  const auto text = json.at("op").get<std::string>();
  const auto op = op_from_name(text);
  if (!op) throw GraphError(fmt::format("unknown op {}", text));
  Node node;
  node.op = *op;
  node.inputs = json.at("inputs").get<std::vector<TensorId>>();
  node.outputs = json.at("outputs").get<std::vector<TensorId>>();
  node.attrs = detail::attrs_from(*op, json.value("attrs", Json::object()), bounds);
  node.site = json.value("site", "");
  node.recompute = json.value("recompute", false);
  return node;
}

HostTensor constant_from(const Json& json) {
  auto shape = json.at("shape").get<std::vector<std::int64_t>>();
  const Json& values = json.at("values");
  std::int64_t count = 1;
  for (const auto size : shape) {
    // Checked before anything is allocated: a size that disagrees with the values must be an error, not an allocation.
    if (size < 0 || (size > 0 && count > static_cast<std::int64_t>(values.size()) / size + 1))
      throw GraphError("a constant's shape does not match its values");
    count *= size;
  }
  if (count != static_cast<std::int64_t>(values.size()))
    throw GraphError("a constant's shape does not match its values");
  HostTensor constant(dtype_at(json), std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = detail::number_from(values[i]);
    if (!number) throw GraphError(fmt::format("a constant's value must be a number, not {}", values[i].dump()));
    constant.set_number(static_cast<std::int64_t>(i), *number);
  }
  return constant;
}

std::vector<NamedTensor> named_from(const Json& json) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : json.items()) list.push_back({name, tensor.get<TensorId>()});
  return list;
}

Graph read_graph(const Json& json) {
  if (json.at("version") != json_version) throw GraphError("made by another version of Jerboa");
  Graph graph;
  graph.training = json.value("training", false);
  const auto bounds = json.value("symbols", Json::object()).get<Bounds>();
  for (const Json& tensor : json.at("tensors")) {
    TensorInfo info = tensor_from(tensor, bounds);
    const std::string name = std::exchange(info.name, "");
    if (graph.find(name) != no_tensor) throw GraphError(fmt::format("two tensors are named {}", name));
    graph.tensors.push_back(std::move(info));
    graph.rename(static_cast<TensorId>(graph.tensors.size()) - 1, name);
  }
  for (const Json& item : json.at("nodes")) {
    Node node = node_from(item, bounds);
    for (const TensorId output : node.outputs) {
      if (output < 0 || output >= static_cast<TensorId>(graph.tensors.size()))
        throw GraphError(fmt::format("{} writes tensor {}, which does not exist", name(node.op), output));
      graph.tensor(output).producer = static_cast<NodeId>(graph.nodes.size());
    }
    graph.nodes.push_back(std::move(node));
  }
  for (const Json& constant : json.value("constants", Json::array()))
    graph.constants.push_back(constant_from(constant));
  graph.outputs = named_from(json.value("outputs", Json::object()));
  graph.captures = named_from(json.value("captures", Json::object()));
  for (const Json& update : json.value("updates", Json::array()))
    graph.updates.push_back({update.at(0).get<TensorId>(), update.at(1).get<TensorId>()});
  return graph;
}

}  // namespace

std::string to_json(const Graph& graph) {
  Json json{{"version", json_version}, {"training", graph.training}, {"symbols", graph.symbols()}};
  json["tensors"] = Json::array();
  for (const TensorInfo& tensor : graph.tensors) json["tensors"].push_back(tensor_json(tensor));
  json["nodes"] = Json::array();
  for (const Node& node : graph.nodes) json["nodes"].push_back(node_json(node));
  json["constants"] = Json::array();
  for (const HostTensor& constant : graph.constants) json["constants"].push_back(constant_json(constant));
  json["outputs"] = named_json(graph.outputs);
  json["captures"] = named_json(graph.captures);
  json["updates"] = Json::array();
  for (const auto& [target, value] : graph.updates) json["updates"].push_back({target, value});
  return json.dump(1);
}

Graph from_json(std::string_view text) {
  try {
    Graph graph = read_graph(parse_ordered_json(text, "graph"));
    verify(graph);
    return graph;
  } catch (const Json::exception& error) {
    throw GraphError(fmt::format("graph: {}", error.what()));
  } catch (const FileError& error) {
    throw GraphError(error.what());
  } catch (const ShapeError& error) {
    throw GraphError(fmt::format("graph: {}", error.what()));
  } catch (const UsageError& error) {
    throw GraphError(fmt::format("graph: {}", error.what()));
  }
}

}  // namespace jerboa
