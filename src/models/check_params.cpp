#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <system_error>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

#include "base/parse_json.h"
#include "models/mxfp4.h"
#include "models/original_name.h"
#include "models/stored_param.h"

// Compares config.json with the tensors of a checkpoint, before anything is allocated.
namespace jerboa::models {
namespace {

bool is_float(StoredType type) {
  return type == StoredType::F64 || type == StoredType::F32 || type == StoredType::F16 || type == StoredType::BF16;
}

void check_entry(const TensorSource& weights, const std::string& name, const Sizes& expected) {
  const TensorEntry& entry = weights.entry(name);
  if (!is_float(entry.type))
    throw FileError(fmt::format("{}: {} is {}, but weights must be F64, F32, F16 or BF16", weights.path().string(),
                                name, to_string(entry.type)));
  if (Sizes(entry.shape) != expected)
    throw FileError(fmt::format("{}: {} is {}, but config.json requires {}", weights.path().string(), name,
                                to_string(Sizes(entry.shape)), to_string(expected)));
}

void want_entry(const TensorSource& weights, const std::string& name, StoredType type, const Sizes& shape) {
  if (!weights.contains(name))
    throw FileError(fmt::format("{}: has no {}, which belongs to a quantised weight", weights.path().string(), name));
  const TensorEntry& entry = weights.entry(name);
  if (entry.type != type || Sizes(entry.shape) != shape)
    throw FileError(fmt::format("{}: {} is {}{}, but must be {}{}", weights.path().string(), name,
                                to_string(entry.type), to_string(Sizes(entry.shape)), to_string(type),
                                to_string(shape)));
}

/// A quantised weight of the file, with its scales and minimums.
void check_quantised(const TensorSource& weights, const TensorInfo& param, const Sizes& sizes) {
  const auto type = quantised_type(weights);
  const bool nibbles = param.type.dtype == DType::i4;
  const StoredType wanted = nibbles ? StoredType::U8 : StoredType::I8;
  if (!type || weights.entry(param.name).type != wanted)
    throw FileError(fmt::format(
        "{}: holds {} weights, but {} ones were asked for: leave out the type of the weights, "
        "or quantise the original again",
        weights.path().string(), type ? quantised_name(*type) : "quantised", quantised_name(param.type.dtype)));
  Sizes packed = sizes;
  if (nibbles) packed.back() /= 2;
  want_entry(weights, param.name, wanted, packed);
  const Sizes groups = shape_of_groups(sizes);
  want_entry(weights, original_name(param.name) + std::string(scales_suffix), StoredType::F16, groups);
  if (nibbles) want_entry(weights, original_name(param.name) + std::string(mins_suffix), StoredType::F16, groups);
}

/// Experts' weights in MXFP4.
void check_mxfp4(const TensorSource& weights, const StoredParam& stored) {
  if (stored.shape.size() != 3 || stored.shape[1] % mxfp4_group != 0)
    throw FileError(fmt::format("{}: {} cannot hold weights of shape {}", weights.path().string(), stored.names[0],
                                to_string(stored.shape)));
  const Sizes groups{stored.shape[0], stored.shape[2], stored.shape[1] / mxfp4_group};
  want_entry(weights, stored.names[0], StoredType::U8, {groups[0], groups[1], groups[2], mxfp4_group / 2});
  want_entry(weights, stored.names[1], StoredType::U8, groups);
}

/// The numbers of the layers in the names of a checkpoint's tensors.
std::set<std::int64_t> layers_in(const TensorSource& weights, const Family& family) {
  std::set<std::int64_t> layers;
  const std::vector<std::string> prefixes = possible_names(std::string(family.layer_prefix), family);
  for (const std::string& name : weights.names()) {
    std::string_view rest = name;
    const auto prefix = std::find_if(prefixes.begin(), prefixes.end(),
                                     [&](const std::string& possible) { return rest.starts_with(possible); });
    if (prefix == prefixes.end()) continue;
    rest.remove_prefix(prefix->size());
    std::int32_t layer = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (error == std::errc() && layer >= 0 && end != rest.data() + rest.size() && *end == '.') layers.insert(layer);
  }
  return layers;
}

}  // namespace

void check_layers(const TensorSource& weights, const Config& config, const Family& family) {
  const std::string key(family.layer_count);
  if (!config.has(key)) return;  // building the graph reports that, unless the family has another key for it
  const std::set<std::int64_t> stored = layers_in(weights, family);
  std::int64_t whole = 0;  // how many there are before the first that is missing
  while (stored.contains(whole)) ++whole;
  if (config.count(key) <= whole) return;
  const auto names = weights.names();
  const std::string example = names.empty() ? "it has no tensors" : "its first tensor is " + in_quotes(names.front());
  const std::string gap =
      static_cast<std::int64_t>(stored.size()) > whole ? fmt::format(", but not of layer {}", whole) : "";
  throw FileError(fmt::format("{}: {} is {}, but {} has the weights {}N.… of {} layers{} ({})", config.origin(), key,
                              config.count(key), weights.path().string(), family.layer_prefix, stored.size(), gap,
                              example));
}

void check_params(const TensorSource& weights, const Graph& graph, const Family& family) {
  constexpr std::size_t max_shown = 3;
  std::vector<std::string> missing;
  std::size_t missing_count = 0;
  for_each_stored(weights, graph, family, [&](const TensorInfo& param, const StoredParam& stored) {
    if (stored.quantised) return check_quantised(weights, param, stored.shape);
    if (stored.packed) return;
    if (stored.mxfp4) return check_mxfp4(weights, stored);
    for (const std::string& name : stored.names)
      if (weights.contains(name))
        check_entry(weights, name, stored.shape);
      else if (++missing_count <= max_shown)
        missing.push_back(name);
  });
  if (missing_count == 0) return;
  const auto type = quantised_type(weights);
  throw FileError(fmt::format(
      "{}: has no {}{}{}", weights.path().string(), fmt::join(missing, ", "),
      missing_count > max_shown ? fmt::format(" and {} more that config.json asks for", missing_count - max_shown) : "",
      type ? fmt::format("; its weights are {} and cannot be converted to another type", quantised_name(*type)) : ""));
}

}  // namespace jerboa::models
