#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/io/safetensors_writer.h>
#include <jerboa/models/family.h>
#include <jerboa/models/gguf_model.h>
#include <jerboa/models/quantise.h>
#include <jerboa/models/save_folder.h>

#include "base/parse_json.h"
#include "models/checkpoint_form.h"
#include "models/folder_files.h"
#include "models/listed_tensors.h"
#include "models/model_graph.h"
#include "models/mxfp4.h"
#include "models/temporary_folder.h"

namespace jerboa::models {
namespace {

namespace fs = std::filesystem;

struct HostItem {
  TensorEntry entry;
  HostTensor tensor;
};

/// Parameters in memory.
class HostTensors final : public ListedTensors<HostItem> {
 public:
  explicit HostTensors(std::map<std::string, HostTensor>&& params) {
    for (auto& [name, tensor] : params) {
      TensorEntry entry{type_of(name, tensor.dtype()), tensor.shape(), tensor.bytes().size()};
      list(name, {std::move(entry), std::move(tensor)});
    }
  }

  void read(std::string_view name, std::span<std::byte> bytes) const override {
    const auto from = find(name).tensor.bytes();
    std::copy(from.begin(), from.end(), bytes.begin());
  }
  void read_f32(std::string_view name, std::span<float> values) const override {
    const HostItem& item = find(name);
    to_f32({std::string(name), item.entry.type, item.entry.shape, item.tensor.bytes()}, values);
  }
  const fs::path& path() const override { return path_; }

 private:
  void read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const override {
    const auto part = find(name).tensor.bytes().subspan(from, bytes.size());
    std::copy(part.begin(), part.end(), bytes.begin());
  }
  static StoredType type_of(const std::string& name, DType dtype) {
    switch (dtype) {
      case DType::f32: return StoredType::F32;
      case DType::f16: return StoredType::F16;
      case DType::bf16: return StoredType::BF16;
      default:
        throw UsageError(
            fmt::format("{} is {}: only f32, f16 and bf16 parameters can be saved as a Hugging Face "
                        "folder; load the model without quantising it",
                        name, jerboa::name(dtype)));
    }
  }

  fs::path path_ = "parameters";
};

void read_files(const fs::path& folder, const std::string& within, std::map<std::string, std::string>& files) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / within, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_wanted = is_small_model_file(name) || (!within.empty() && is_weights_file(name));
    if (entry.is_regular_file() && is_wanted)
      files.emplace((fs::path(within) / name).string(), FileContent(entry.path()).text());
  }
}

ModelFolder read_folder(const fs::path& folder) {
  ModelFolder model;
  read_files(folder, "", model.files);
  for (const std::string& module : module_folders(folder)) read_files(folder, module, model.files);
  if (!model.files.contains("config.json"))
    throw FileError(fmt::format("{}: there is no config.json in this folder", folder.string()));
  model.weights = std::make_unique<const SafeTensors>(SafeTensors::open(folder));
  return model;
}

ModelFolder read_gguf_folder(const fs::path& path) {
  GgufModel file = read_gguf_model(Gguf::open(path));
  return {{{"config.json", std::move(file.config)},
           {"generation_config.json", std::move(file.generation_config)},
           {"tokenizer_config.json", std::move(file.tokenizer_config)},
           {file.tokenizer_name, std::move(file.tokenizer)}},
          std::move(file.weights)};
}

StoredType type_in_folder(DType dtype) {
  if (dtype == DType::f32) return StoredType::F32;
  if (dtype == DType::f16) return StoredType::F16;
  if (dtype == DType::bf16) return StoredType::BF16;
  throw UsageError(fmt::format("a Hugging Face folder can hold f32, f16 or bf16 weights, not {}", name(dtype)));
}

// The parameters in the form of the family's checkpoints, whatever form the graph uses.
std::unique_ptr<const TensorSource> checkpoint_of(const ModelFolder& model) {
  const auto config = model.files.find("config.json");
  if (config == model.files.end()) throw UsageError("a Hugging Face folder needs a config.json");
  return in_checkpoint_form(*model.weights, family_of(Config::parse(config->second)));
}

// The type of most of the saved weights, under transformers' name for it.
std::string torch_dtype(const TensorSource& weights, std::optional<StoredType> type) {
  std::map<StoredType, std::size_t> elements;
  for (const std::string& name : weights.names()) {
    const TensorEntry& entry = weights.entry(name);
    elements[type.value_or(entry.type)] += entry.elements();
  }
  const auto count = [&](StoredType wanted) { return elements.contains(wanted) ? elements.at(wanted) : 0; };
  if (count(StoredType::F16) > std::max(count(StoredType::F32), count(StoredType::BF16))) return "float16";
  return count(StoredType::BF16) > count(StoredType::F32) ? "bfloat16" : "float32";
}

bool holds_mxfp4(const TensorSource& weights) {
  const auto names = weights.names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(mxfp4_blocks_suffix); });
}

// The original config with the settings that these weights change. BitNet's `quantization_config` stays, because it
// says what the graph computes.
std::string config_for(const std::string& config, const TensorSource& weights, std::optional<StoredType> type) {
  auto json = parse_ordered_json(with_json_infinities(config), "config.json");
  if (!json.is_object()) throw FileError("config.json: not a JSON object");
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = torch_dtype(weights, type);
  const auto quantisation = json.find("quantization_config");
  if (quantisation != json.end() && quantisation->is_object() && quantisation->value("quant_method", "") == "mxfp4" &&
      !holds_mxfp4(weights))
    json.erase("quantization_config");
  return json.dump(2) + "\n";
}

}  // namespace

ModelFolder open_model_folder(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return read_folder(path);
  if (path.extension() == ".gguf") return read_gguf_folder(path);
  throw FileError(fmt::format("{}: neither a Hugging Face folder nor a .gguf file", path.string()));
}

ModelFolder make_model_folder(std::map<std::string, HostTensor> params, std::map<std::string, std::string> files) {
  return {std::move(files), std::make_unique<const HostTensors>(std::move(params))};
}

void check_folder(const ModelFolder& model, const fs::path& path) {
  const auto text = model.files.find("config.json");
  if (text == model.files.end()) throw FileError(fmt::format("{}: there is no config.json", path.string()));
  const Config config = Config::parse(text->second, (path / "config.json").string());
  const Family& family = family_of(config);
  check_layers(*model.weights, config, family);
  if (!family.graphs.decoder && !family.graphs.encoder) return;  // models of pictures or sound
  check_params(*model.weights, graph_of(config, family, quantised_type(*model.weights).value_or(DType::f32)), family);
}

void save_folder(const fs::path& folder, const ModelFolder& model, std::optional<DType> weights) {
  const auto type = weights ? std::optional(type_in_folder(*weights)) : std::nullopt;
  TemporaryFolder made(folder);
  const auto tensors = checkpoint_of(model);
  std::map<std::string, std::string> files = model.files;
  std::string& config = files.at("config.json");
  config = config_for(config, *tensors, type);
  write_model_files(made.path(), files);
  write_safetensors(made.path() / "model.safetensors", *tensors, type, {{"format", "pt"}});
  made.take_name();
}

}  // namespace jerboa::models
