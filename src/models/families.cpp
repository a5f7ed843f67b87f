#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>

#include "models/decoder.h"

namespace jerboa::models {

std::span<const Family> families() {
  static constexpr auto table = std::to_array<Family>({
      {"gemma2", gemma2_logits},
      {"gemma3_text", gemma3_logits},
      {"gpt2", gpt2_logits, "transformer."},
      {"llama", llama_logits},
      {"mistral", mistral_logits},
      {"phi3", phi3_logits},
      {"qwen2", qwen2_logits},
      {"qwen3", qwen3_logits},
      {"smollm3", smollm3_logits},
  });
  return table;
}

const Family& family_of(const Config& config) {
  const std::string type = config.text("model_type");
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (family.model_type == type) return family;
    known.push_back(family.model_type);
  }
  throw UsageError(
      fmt::format("{}: no family of models is named {}; there are {}", config.origin(), type, fmt::join(known, ", ")));
}

namespace {

HostTensor read(const SafeTensors& weights, const std::string& stored, const TensorInfo& param) {
  const TensorView& view = weights.view(stored);
  if (to_shape(view.shape) != param.type.shape)
    throw FileError(fmt::format("{}: {} is {}, but the model's is {}", weights.path().string(), stored,
                                to_string(Sizes(view.shape)), to_string(param.type.shape)));
  return {view.shape, to_f32(view)};
}

}  // namespace

void for_each_param(const SafeTensors& weights, const Graph& graph, const Family& family,
                    const std::function<void(const std::string& name, HostTensor values)>& use) {
  std::vector<std::pair<const TensorInfo*, std::string>> found;
  std::vector<std::string> missing;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param) continue;
    const std::string& name = tensor.name;
    const std::string shorter =
        name.starts_with(family.optional_prefix) ? name.substr(family.optional_prefix.size()) : name;
    if (weights.contains(name) || weights.contains(shorter))
      found.emplace_back(&tensor, weights.contains(name) ? name : shorter);
    else
      missing.push_back(name);
  }
  if (!missing.empty())
    throw FileError(fmt::format("{}: has no {}", weights.path().string(), fmt::join(missing, ", ")));
  for (const auto& [param, stored] : found) use(param->name, read(weights, stored, *param));
}

std::map<std::string, HostTensor> read_params(const SafeTensors& weights, const Graph& graph, const Family& family) {
  std::map<std::string, HostTensor> params;
  for_each_param(weights, graph, family,
                 [&](const std::string& name, HostTensor values) { params.emplace(name, std::move(values)); });
  return params;
}

}  // namespace jerboa::models
