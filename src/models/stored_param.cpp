#include "models/stored_param.h"

#include <algorithm>
#include <utility>

#include <jerboa/models/quantise.h>

#include "models/mxfp4.h"
#include "models/original_name.h"

namespace jerboa::models {
namespace {

bool is_packed(const TensorSource& weights, const Family& family, const std::string& name, const Sizes& sizes) {
  if (!family.ternary || sizes.size() != 2 || sizes[0] % 4 != 0) return false;
  const TensorEntry& entry = weights.entry(name);
  return entry.type == StoredType::U8 && Sizes(entry.shape) == Sizes{sizes[0] / 4, sizes[1]};
}

Sizes shape_of_parts(const Sizes& whole, std::size_t count) {
  return {whole.at(0) * whole.at(1) / static_cast<std::int64_t>(count), whole.at(2)};
}

// The names of a text model's tensors in multimodal checkpoints.
std::vector<std::string> names_beside_towers(const std::string& name) {
  const std::string model = "model.";
  if (!name.starts_with(model)) return {"language_model." + name};  // the head
  const std::string rest = name.substr(model.size());
  return {"model.language_model." + rest, "language_model.model." + rest, "model.text_model." + rest};
}

// The possible names of the tensors that are stacked into a parameter.
std::vector<std::vector<std::string>> possible_parts(const std::string& name, const Shape& shape,
                                                     const Family& family) {
  std::vector<std::vector<std::string>> all;
  if (!family.parts) return all;
  for (const std::string& part : family.parts(name, shape)) {
    const std::vector<std::string> names = possible_names(part, family);
    all.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) all[i].push_back(names[i]);
  }
  return all;
}

}  // namespace

std::vector<std::string> possible_names(const std::string& name, const Family& family) {
  std::vector<std::string> names{name};
  if (family.graphs.decoder)
    for (std::string& longer : names_beside_towers(name)) names.push_back(std::move(longer));
  if (!family.optional_prefix.empty() && name.starts_with(family.optional_prefix))
    names.push_back(name.substr(family.optional_prefix.size()));
  for (std::size_t i = 0, known = names.size(); i < known; ++i)
    for (const auto& [now, then] : {std::pair{".weight", ".gamma"}, std::pair{".bias", ".beta"}})
      if (names[i].ends_with(std::string("LayerNorm") + now))
        names.push_back(names[i].substr(0, names[i].rfind('.')) + then);
  return names;
}

StoredParam stored_as(const TensorSource& weights, const Family& family, const TensorInfo& param) {
  const auto is_stored = [&](const std::string& name) { return weights.contains(name); };
  const Sizes sizes = evaluate(param.type.shape, {});
  if (!jerboa::is_float(param.type.dtype) && is_stored(param.name)) return {{param.name}, sizes, true};
  const std::string name = original_name(param.name);
  const bool transposed = !jerboa::is_float(param.type.dtype) && family.stored_in_out && family.stored_in_out(name);
  Sizes stored = sizes;
  if (transposed) std::swap(stored.at(sizes.size() - 1), stored.at(sizes.size() - 2));
  for (const std::string& possible : possible_names(name, family))
    if (is_stored(possible))
      return {{possible}, stored, false, transposed, is_packed(weights, family, possible, stored)};
  const auto parts = possible_parts(name, param.type.shape, family);
  for (const auto& possible : parts)
    if (std::any_of(possible.begin(), possible.end(), is_stored))
      return {possible, shape_of_parts(sizes, possible.size())};
  if (is_stored(name + std::string(mxfp4_blocks_suffix)))
    return {{name + std::string(mxfp4_blocks_suffix), name + std::string(mxfp4_scales_suffix)},
            stored,
            false,
            transposed,
            false,
            true};
  return {{name}, stored, false, transposed};
}

bool is_part_of_quantised(const TensorInfo& param) {
  return param.name.ends_with(scales_suffix) || param.name.ends_with(mins_suffix);
}

Sizes shape_of_groups(Sizes weight) {
  weight.back() /= quantised_group;
  return weight;
}

}  // namespace jerboa::models
