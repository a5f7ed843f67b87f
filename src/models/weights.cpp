#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>

// From the tensors of a checkpoint to the parameters of a graph.
namespace jerboa::models {
namespace {

/// Tensors of one shape that make up a parameter, one below the other.
struct Stored {
  std::vector<std::string> names;
  Sizes shape;
};

Sizes shape_of_parts(const Sizes& whole, std::size_t count) {
  return {whole.at(0) * whole.at(1) / static_cast<std::int64_t>(count), whole.at(2)};
}

// A parameter of which the checkpoint has nothing is asked for under its own name.
Stored stored_as(const SafeTensors& weights, const Family& family, const TensorInfo& param) {
  const auto is_there = [&](const std::string& name) { return weights.contains(name); };
  const Sizes sizes = evaluate(param.type.shape, {});
  const std::string& name = param.name;
  if (is_there(name)) return {{name}, sizes};
  if (name.starts_with(family.optional_prefix)) {
    const std::string shorter = name.substr(family.optional_prefix.size());
    if (is_there(shorter)) return {{shorter}, sizes};
  }
  const auto parts = family.parts ? family.parts(name, param.type.shape) : std::vector<std::string>();
  if (std::any_of(parts.begin(), parts.end(), is_there)) return {parts, shape_of_parts(sizes, parts.size())};
  return {{name}, sizes};
}

HostTensor read(const SafeTensors& weights, const Stored& stored, const Sizes& sizes) {
  HostTensor values(DType::f32, sizes);
  auto place = values.as<float>().begin();
  for (const std::string& name : stored.names) {
    const TensorView& view = weights.view(name);
    if (Sizes(view.shape) != stored.shape)
      throw FileError(fmt::format("{}: {} is {}, but the model's is {}", weights.path().string(), name,
                                  to_string(Sizes(view.shape)), to_string(stored.shape)));
    const auto part = to_f32(view);
    place = std::copy(part.begin(), part.end(), place);
  }
  return values;
}

}  // namespace

void for_each_param(const SafeTensors& weights, const Graph& graph, const Family& family,
                    const std::function<void(const std::string& name, HostTensor values)>& use) {
  std::vector<std::pair<const TensorInfo*, Stored>> found;
  std::vector<std::string> missing;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param) continue;
    found.emplace_back(&tensor, stored_as(weights, family, tensor));
    for (const std::string& name : found.back().second.names)
      if (!weights.contains(name)) missing.push_back(name);
  }
  if (!missing.empty())
    throw FileError(fmt::format("{}: has no {}", weights.path().string(), fmt::join(missing, ", ")));
  for (const auto& [param, stored] : found) use(param->name, read(weights, stored, evaluate(param->type.shape, {})));
}

std::map<std::string, HostTensor> read_params(const SafeTensors& weights, const Graph& graph, const Family& family) {
  std::map<std::string, HostTensor> params;
  for_each_param(weights, graph, family,
                 [&](const std::string& name, HostTensor values) { params.emplace(name, std::move(values)); });
  return params;
}

}  // namespace jerboa::models
