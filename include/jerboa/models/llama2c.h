#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <jerboa/io/tensor_view.h>

namespace jerboa::models {

/// A model of llama2.c in Hugging Face's form: the text of config.json and generation_config.json, and the tensors of
/// model.safetensors.
struct Llama2cModel {
  Llama2cModel() = default;
  Llama2cModel(Llama2cModel&&) = default;  // no copies: their tensors would be those of the original
  Llama2cModel& operator=(Llama2cModel&&) = default;

  std::string config, generation_config;
  std::vector<TensorView> tensors;         ///< of the file's memory and of `turned`
  std::vector<std::vector<float>> turned;  ///< the weights whose rows stand in another order there
};

/// From a file in llama2.c's format (its first version, f32), which must outlive the result. `name` stands for it in
/// errors. Throws FileError where it is not what it should be, before it takes memory for what its header says.
Llama2cModel parse_llama2c(std::span<const std::byte> file, const std::string& name = "model.bin");

/// Makes a Hugging Face folder of such a file: config.json, generation_config.json and model.safetensors. The tokenizer
/// is not part of it; llama2.c's tokenizer.bin in the same folder does. Nothing half-written stays.
void import_llama2c(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace jerboa::models
