#include "language/embedding_modules.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/models/config.h>

#include "base/parse_json.h"

namespace jerboa::detail {
namespace {

namespace fs = std::filesystem;
using models::Config;
using models::Pooling;

constexpr std::array pooling_flags{std::pair{"pooling_mode_cls_token", Pooling::cls},
                                   std::pair{"pooling_mode_max_tokens", Pooling::max},
                                   std::pair{"pooling_mode_mean_tokens", Pooling::mean},
                                   std::pair{"pooling_mode_mean_sqrt_len_tokens", Pooling::mean_sqrt},
                                   std::pair{"pooling_mode_weightedmean_tokens", Pooling::weighted_mean},
                                   std::pair{"pooling_mode_lasttoken", Pooling::last}};

constexpr std::array pooling_names{
    std::pair{"cls", Pooling::cls},   std::pair{"lasttoken", Pooling::last},
    std::pair{"max", Pooling::max},   std::pair{"mean_sqrt_len_tokens", Pooling::mean_sqrt},
    std::pair{"mean", Pooling::mean}, std::pair{"weightedmean", Pooling::weighted_mean}};

// The part of a Python name after its last dot.
std::string class_of(std::string_view name) { return std::string(name.substr(name.rfind('.') + 1)); }

Pooling pooling_of(const Config& config, const std::string& name) {
  for (const auto& [known, kind] : pooling_names)
    if (name == known) return kind;
  config.fail("pooling_mode", "is not supported");
}

// Several kinds are concatenated, in this order.
std::vector<Pooling> poolings_of(const Config& config) {
  if (config.has("pooling_mode")) return {pooling_of(config, config.text("pooling_mode"))};
  std::vector<Pooling> kinds;
  for (const auto& [key, kind] : pooling_flags)
    if (config.flag(key, kind == Pooling::mean)) kinds.push_back(kind);
  if (kinds.empty()) throw FileError(fmt::format("{}: no pooling_mode is true", config.origin()));
  return kinds;
}

HostTensor read_weight(const SafeTensors& file, const std::string& name, const Sizes& shape) {
  if (!file.contains(name)) throw FileError(fmt::format("{}: has no {}", file.path().string(), name));
  if (Sizes(file.entry(name).shape) != shape)
    throw FileError(fmt::format("{}: {} is {}, but config.json requires {}", file.path().string(), name,
                                to_string(Sizes(file.entry(name).shape)), to_string(shape)));
  return {shape, to_f32(file.view(name))};
}

DenseModule read_dense(const fs::path& folder, const std::string& name) {
  const Config config = Config::open(folder);
  const SafeTensors file = SafeTensors::open(folder);
  DenseModule dense{.name = name, .in = config.size("in_features"), .out = config.size("out_features")};
  const auto activation = torch_activation(config.text("activation_function", "torch.nn.modules.activation.Tanh"));
  if (!activation) config.fail("activation_function", "is not supported");
  dense.activation = *activation;
  dense.weight = read_weight(file, "linear.weight", {dense.out, dense.in});
  if (config.flag("bias", true)) dense.bias = read_weight(file, "linear.bias", {dense.out});
  return dense;
}

void add_module(EmbeddingModules& modules, const fs::path& folder, const std::string& path, const std::string& type,
                const std::string& origin) {
  const std::string kind = class_of(type);
  if (kind == "Transformer") {
    modules.transformer = folder / path;
  } else if (kind == "Pooling") {
    const Config config = Config::open(folder / path);
    modules.poolings = poolings_of(config);
    modules.include_prompt = config.flag("include_prompt", true);
  } else if (kind == "Dense") {
    modules.steps.emplace_back(read_dense(folder / path, path));
  } else if (kind == "Normalize") {
    modules.steps.emplace_back(std::nullopt);
  } else if (kind != "Dropout") {
    throw FileError(fmt::format("{}: modules of type {} are not supported", origin, in_quotes(type)));
  }
}

void read_modules(EmbeddingModules& modules, const fs::path& folder) {
  const fs::path path = folder / "modules.json";
  if (!fs::exists(path)) return;
  const auto list = parse_json(FileContent(path).text(), path.string());
  if (!list.is_array()) throw FileError(fmt::format("{}: not a list of modules", path.string()));
  modules.transformer.clear();
  for (const auto& item : list) {
    const auto text_at = [&](const char* key) {
      if (!item.is_object() || !item.contains(key) || !item[key].is_string())
        throw FileError(fmt::format("{}: a module has no text {}", path.string(), key));
      return item[key].template get<std::string>();
    };
    const std::string place = text_at("path");
    add_module(modules, folder, place, text_at("type"), path.string());
  }
  if (modules.transformer.empty()) throw FileError(fmt::format("{}: there is no Transformer", path.string()));
  modules.normalise = !modules.steps.empty() && !modules.steps.back();
  if (modules.normalise) modules.steps.pop_back();
}

// Older files are named after the model's family.
void read_limits(EmbeddingModules& modules) {
  for (const char* name : {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const fs::path path = modules.transformer / fmt::format("sentence_{}_config.json", name);
    if (!fs::exists(path)) continue;
    const Config config = Config::open(path);
    if (config.has("max_seq_length")) modules.max_length = config.size("max_seq_length");
    modules.lower_case = config.flag("do_lower_case", false);
    return;
  }
}

Similarity similarity_of(const Config& config) {
  const std::string name = config.text("similarity_fn_name", "cosine");
  if (name == "cosine") return Similarity::cosine;
  if (name == "dot" || name == "dot_product") return Similarity::dot;
  if (name == "euclidean") return Similarity::euclidean;
  if (name == "manhattan") return Similarity::manhattan;
  config.fail("similarity_fn_name", "is not supported");
}

void read_prompts(EmbeddingModules& modules, const fs::path& folder) {
  const fs::path path = folder / "config_sentence_transformers.json";
  if (!fs::exists(path)) return;
  const Config config = Config::open(path);
  if (const auto prompts = config.section("prompts"))
    for (const std::string& name : prompts->keys()) modules.prompts.emplace(name, prompts->text(name));
  modules.default_prompt = config.text("default_prompt_name", "");
  if (!modules.default_prompt.empty() && !modules.prompts.contains(modules.default_prompt))
    config.fail("default_prompt_name", "is not among the prompts");
  modules.similarity = similarity_of(config);
}

}  // namespace

std::optional<Activation> torch_activation(std::string_view name) {
  const std::string kind = class_of(name);
  if (kind == "Identity") return Activation::none;
  if (kind == "Tanh") return Activation::tanh;
  if (kind == "Sigmoid") return Activation::sigmoid;
  if (kind == "ReLU") return Activation::relu;
  if (kind == "GELU") return Activation::gelu;
  if (kind == "SiLU") return Activation::silu;
  return std::nullopt;
}

EmbeddingModules read_embedding_modules(const fs::path& folder) {
  EmbeddingModules modules{.transformer = folder};
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return modules;  // a .gguf file
  read_modules(modules, folder);
  read_limits(modules);
  read_prompts(modules, folder);
  return modules;
}

}  // namespace jerboa::detail
