#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <jerboa/base/host_tensor.h>
#include <jerboa/io/tensor_source.h>

namespace jerboa::models {

/// The content of a Hugging Face folder: the weights under their names in the checkpoint, and the small files
/// (config.json, generation_config.json, the tokenizer's and the chat template's) by name.
struct ModelFolder {
  std::map<std::string, std::string> files;
  std::unique_ptr<const TensorSource> weights;
};

/// From a Hugging Face folder or a .gguf file. Throws FileError or UsageError.
ModelFolder open_model_folder(const std::filesystem::path& path);

/// Throws FileError if config.json does not describe these weights. `path` is named in errors.
void check_folder(const ModelFolder& model, const std::filesystem::path& path);

/// Makes a folder from parameters, such as those that Session::download_params returns for a family's graph after
/// training, and the files of the model that they belong to.
ModelFolder make_model_folder(std::map<std::string, HostTensor> params, std::map<std::string, std::string> files);

/// Writes the folder, with all weights in model.safetensors as the family's checkpoints hold them: stacked experts one
/// by one, int8 and int4 weights as f32. They are converted to f32, f16 or bf16 if `weights` says so. The folder
/// appears whole or not at all: it is written next to its destination and then renamed. Throws UsageError if something
/// else exists in its place.
void save_folder(const std::filesystem::path& folder, const ModelFolder& model, std::optional<DType> weights = {});

}  // namespace jerboa::models
