#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

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

// What a parameter is called in a checkpoint: a quantised one is made of the weight itself.
std::string stored_name(const TensorInfo& param) {
  const bool quantised = param.name.ends_with(quantised_suffix);
  return quantised ? param.name.substr(0, param.name.size() - quantised_suffix.size()) : param.name;
}

// A parameter of which the checkpoint has nothing is asked for under its own name.
Stored stored_as(const SafeTensors& weights, const Family& family, const TensorInfo& param) {
  const auto is_there = [&](const std::string& name) { return weights.contains(name); };
  const Sizes sizes = evaluate(param.type.shape, {});
  const std::string name = stored_name(param);
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

// In 16 bits, as the file has it where that is the same type.
HostTensor narrowed(const SafeTensors& weights, const Stored& stored, const Sizes& sizes, DType dtype) {
  const StoredType same = dtype == DType::bf16 ? StoredType::BF16 : StoredType::F16;
  HostTensor values(dtype, sizes);
  if (stored.names.size() == 1 && weights.view(stored.names[0]).type == same &&
      Sizes(weights.view(stored.names[0]).shape) == sizes) {
    const auto bytes = weights.view(stored.names[0]).bytes;
    std::copy(bytes.begin(), bytes.end(), values.bytes().begin());
    return values;
  }
  const HostTensor wide = read(weights, stored, sizes);
  const auto to = values.as<std::uint16_t>();
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = dtype == DType::bf16 ? f32_to_bf16(wide.f32()[i]) : f32_to_f16(wide.f32()[i]);
  return values;
}

}  // namespace

void for_each_param(const SafeTensors& weights, const Graph& graph, const Family& family,
                    const std::function<void(const std::string& name, HostTensor values)>& use) {
  std::vector<std::pair<const TensorInfo*, Stored>> found;
  std::vector<std::string> missing;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || tensor.name.ends_with(scales_suffix)) continue;
    found.emplace_back(&tensor, stored_as(weights, family, tensor));
    for (const std::string& name : found.back().second.names)
      if (!weights.contains(name)) missing.push_back(name);
  }
  if (!missing.empty())
    throw FileError(fmt::format("{}: has no {}", weights.path().string(), fmt::join(missing, ", ")));
  for (const auto& [param, stored] : found) {
    const Sizes sizes = evaluate(param->type.shape, {});
    const DType dtype = param->type.dtype;
    if (dtype == DType::f32) {
      use(param->name, read(weights, stored, sizes));
    } else if (bits(dtype) == 16) {
      use(param->name, narrowed(weights, stored, sizes, dtype));
    } else {
      const HostTensor wide = read(weights, stored, sizes);
      Quantised own = quantise(wide.f32(), sizes[0], sizes[1], dtype);
      use(param->name, std::move(own.weight));
      use(stored_name(*param) + std::string(scales_suffix), std::move(own.scales));
    }
  }
}

std::map<std::string, HostTensor> read_params(const SafeTensors& weights, const Graph& graph, const Family& family) {
  std::map<std::string, HostTensor> params;
  for_each_param(weights, graph, family,
                 [&](const std::string& name, HostTensor values) { params.emplace(name, std::move(values)); });
  return params;
}

}  // namespace jerboa::models
