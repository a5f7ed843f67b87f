#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

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

// The parts of a parameter in the file, each of the shape that the graph wants.
std::vector<const TensorView*> views_of(const SafeTensors& weights, const Stored& stored) {
  std::vector<const TensorView*> views;
  for (const std::string& name : stored.names) {
    const TensorView& view = weights.view(name);
    if (Sizes(view.shape) != stored.shape)
      throw FileError(fmt::format("{}: {} is {}, but the model's is {}", weights.path().string(), name,
                                  to_string(Sizes(view.shape)), to_string(stored.shape)));
    views.push_back(&view);
  }
  return views;
}

std::optional<StoredType> stored_as_is(DType dtype) {
  switch (dtype) {
    case DType::f32: return StoredType::F32;
    case DType::f16: return StoredType::F16;
    case DType::bf16: return StoredType::BF16;
    default: return std::nullopt;
  }
}

/// Reads parameters one after another, through memory that is used again where they need to be converted.
class Reader {
 public:
  explicit Reader(const SafeTensors& weights) : weights_(weights) {}

  /// The values in f32.
  std::span<const float> wide(const Stored& stored) {
    const auto views = views_of(weights_, stored);
    std::size_t count = 0;
    for (const TensorView* view : views) count += view->elements();
    wide_.resize(count);
    std::span<float> rest = wide_;
    for (const TensorView* view : views) {
      to_f32(*view, rest.first(view->elements()));
      rest = rest.subspan(view->elements());
    }
    return wide_;
  }

  /// The bytes in f32 or 16 bits: the file's own, where it holds them so.
  std::span<const std::byte> bytes(const Stored& stored, DType dtype) {
    const auto views = views_of(weights_, stored);
    if (views.size() == 1 && views[0]->type == stored_as_is(dtype)) return views[0]->bytes;
    const auto values = wide(stored);
    if (dtype == DType::f32) return std::as_bytes(values);
    narrow_.resize(values.size());
    std::transform(values.begin(), values.end(), narrow_.begin(), dtype == DType::bf16 ? f32_to_bf16 : f32_to_f16);
    return std::as_bytes(std::span(narrow_));
  }

 private:
  const SafeTensors& weights_;
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace

void for_each_param(const SafeTensors& weights, const Graph& graph, const Family& family,
                    const std::function<void(const ParamValues& values)>& use) {
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
  Reader reader(weights);
  for (const auto& [param, stored] : found) {
    const Sizes sizes = evaluate(param->type.shape, {});
    const DType dtype = param->type.dtype;
    if (is_float(dtype)) {
      use({param->name, dtype, sizes, reader.bytes(stored, dtype)});
    } else {
      const Quantised own = quantise(reader.wide(stored), sizes[0], sizes[1], dtype);
      const std::string scales = stored_name(*param) + std::string(scales_suffix);
      use({param->name, dtype, sizes, own.weight.bytes()});
      use({scales, own.scales.dtype(), own.scales.shape(), own.scales.bytes()});
    }
  }
}

std::map<std::string, HostTensor> read_params(const SafeTensors& weights, const Graph& graph, const Family& family) {
  std::map<std::string, HostTensor> params;
  for_each_param(weights, graph, family, [&](const ParamValues& values) {
    HostTensor own(values.dtype, values.shape);
    std::copy(values.bytes.begin(), values.bytes.end(), own.bytes().begin());
    params.emplace(values.name, std::move(own));
  });
  return params;
}

}  // namespace jerboa::models
