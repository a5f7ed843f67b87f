#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <jerboa/io/tensor_view.h>

namespace jerboa::models {

/// A llama2.c model in Hugging Face's form: the text of config.json and generation_config.json, and the tensors of
/// model.safetensors.
struct Llama2cModel {
  Llama2cModel() = default;
  Llama2cModel(Llama2cModel&&) = default;  // not copyable: the tensors point into the original
  Llama2cModel& operator=(Llama2cModel&&) = default;

  std::string config, generation_config;
  std::vector<TensorView> tensors;           ///< views into the file and into `permuted`
  std::vector<std::vector<float>> permuted;  ///< the weights whose rows are in a different order in the file
};

/// From a file in llama2.c's format (its first version, f32), which must outlive the result. Errors call it `name`.
/// Throws FileError if the file is malformed, before allocating what its header asks for.
Llama2cModel parse_llama2c(std::span<const std::byte> file, const std::string& name = "model.bin");

/// Converts such a file to a Hugging Face folder: config.json, generation_config.json, model.safetensors and, if there
/// is one, llama2.c's tokenizer.bin. The folder appears whole or not at all. Throws UsageError if something else exists
/// in its place.
void import_llama2c(const std::filesystem::path& file, const std::filesystem::path& folder,
                    const std::filesystem::path& tokenizer = {});

}  // namespace jerboa::models
