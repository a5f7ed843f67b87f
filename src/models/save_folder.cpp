#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unistd.h>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/io/safetensors_writer.h>
#include <jerboa/models/gguf_model.h>
#include <jerboa/models/save_folder.h>

#include "base/parse_json.h"

namespace jerboa::models {
namespace {

namespace fs = std::filesystem;

constexpr std::array small_files{"config.json",         "generation_config.json",
                                 "tokenizer.json",      "tokenizer.model",
                                 "tokenizer.bin",       "tokenizer_config.json",
                                 "chat_template.jinja", "special_tokens_map.json",
                                 "added_tokens.json",   "vocab.json",
                                 "merges.txt",          "chat_template.json"};

/// Parameters in memory.
class HostTensors final : public TensorSource {
 public:
  explicit HostTensors(std::map<std::string, HostTensor>&& params) {
    for (auto& [name, tensor] : params) {
      Item item{{type_of(name, tensor.dtype()), tensor.shape(), tensor.bytes().size()}, std::move(tensor)};
      items_.emplace(name, std::move(item));
    }
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, item] : items_) names.push_back(name);
    return names;
  }
  bool contains(std::string_view name) const override { return items_.contains(name); }
  const TensorEntry& entry(std::string_view name) const override { return find(name).entry; }
  void read(std::string_view name, std::span<std::byte> bytes) const override {
    const auto from = find(name).tensor.bytes();
    std::copy(from.begin(), from.end(), bytes.begin());
  }
  void read_f32(std::string_view name, std::span<float> values) const override {
    const Item& item = find(name);
    to_f32({std::string(name), item.entry.type, item.entry.shape, item.tensor.bytes()}, values);
  }
  const fs::path& path() const override { return path_; }

 private:
  struct Item {
    TensorEntry entry;
    HostTensor tensor;
  };

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
  const Item& find(std::string_view name) const {
    if (const auto found = items_.find(name); found != items_.end()) return found->second;
    throw UsageError(fmt::format("there is no parameter \"{}\"", name));
  }

  std::map<std::string, Item, std::less<>> items_;
  fs::path path_ = "parameters";
};

ModelFolder read_folder(const fs::path& folder) {
  ModelFolder model;
  for (const char* name : small_files)
    if (fs::is_regular_file(folder / name)) model.files.emplace(name, FileContent(folder / name).text());
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

// The type that most of the weights will have, under the name that transformers uses.
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

std::string with_dtype(const std::string& config, const std::string& dtype) {
  auto json = parse_ordered_json(config, "config.json");
  if (!json.is_object()) throw FileError("config.json: not a JSON object");
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

/// A new folder beside the target; removed unless it takes the target's place.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& target) : target_(target) {
    std::error_code error;
    if (fs::exists(target, error) && !(fs::is_directory(target, error) && fs::is_empty(target, error)))
      throw UsageError(fmt::format("{} already exists; remove it, or choose another folder", target.string()));
    if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
    path_ = target;
    path_.replace_filename(fmt::format(".{}.{}.tmp", target.filename().string(), ::getpid()));
    if (!fs::create_directory(path_, error)) {
      const std::string reason = error ? error.message() : "it exists already";
      throw FileError(fmt::format("{}: cannot create this folder: {}", std::exchange(path_, {}).string(), reason));
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  void take_name() {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) throw FileError(fmt::format("{}: cannot create: {}", target_.string(), error.message()));
    path_.clear();
  }

 private:
  fs::path target_, path_;
};

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

void save_folder(const fs::path& folder, const ModelFolder& model, std::optional<DType> weights) {
  const auto type = weights ? std::optional(type_in_folder(*weights)) : std::nullopt;
  // A trailing slash would leave no name to write beside.
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();
  TemporaryFolder made(target);
  for (const auto& [name, content] : model.files)
    write_file_atomically(made.path() / name,
                          name == "config.json" ? with_dtype(content, torch_dtype(*model.weights, type)) : content);
  write_safetensors(made.path() / "model.safetensors", *model.weights, type, {{"format", "pt"}});
  made.take_name();
}

}  // namespace jerboa::models
